// What a folder's tokenizer files are refused for. That ids are right is checked by
// tests/golden/tokenizer_files_test.cc.

#include "frontend/text/tokenizer_folder.h"

#include <string>
#include <vector>

#include "frontend/text/tokenizer.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct File {
  std::string name;
  std::string bytes;
};

Status Load(const std::vector<File>& files) {
  const TempFolder folder;
  for (const File& file : files) folder.Write(file.name, file.bytes);
  return Tokenizer::Load(folder.path()).status();
}

// Bytes in base64 by their ranks.
std::string TekkenVocab(int num_bytes = 256) {
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string vocab = "[";
  for (int byte = 0; byte < num_bytes; ++byte) {
    vocab += R"({"rank": )" + std::to_string(byte) + R"(, "token_bytes": ")" +
             std::string{kAlphabet[byte >> 2], kAlphabet[(byte & 3) << 4]} + "==\"},";
  }
  vocab.back() = ']';
  return vocab;
}

std::string Tekken(const std::string& config, const std::string& vocab = TekkenVocab(),
                   const std::string& more = "") {
  return R"({"config": {"pattern": "\\s+|\\S+")" + config + R"(}, "vocab": )" + vocab + more + "}";
}

TEST_CASE("tekken.json of older versions has the special tokens of all of them") {
  const TempFolder folder;
  folder.Write("tekken.json", Tekken(R"(, "default_num_special_tokens": 1000)"));
  const auto tokenizer = Tokenizer::Load(folder.path()).value();
  CHECK(tokenizer->TokenToId("[INST]") == 3);
  CHECK(tokenizer->TokenToId("[TOOL_CONTENT]") == 19);
  CHECK(tokenizer->TokenToId("<SPECIAL_999>") == 999);
  CHECK(tokenizer->Encode("[SUFFIX]a", true).value() == std::vector<TokenId>{1, 16, 1000 + 'a'});
  CHECK(tokenizer->eos_id() == 2);
}

TEST_CASE("A malformed tekken.json is refused with the place") {
  const auto refusal = [](const std::string& json) {
    return Load({{"tekken.json", json}}).message();
  };
  CHECK(Load({{"tekken.json", Tekken("")}}).ok());
  CHECK_THAT(refusal("{"), Catch::Contains("tekken.json: not a JSON object"));
  CHECK_THAT(refusal("{}"), Catch::Contains("no pattern"));
  CHECK_THAT(refusal(Tekken("", "{}")), Catch::Contains("vocab is object"));
  CHECK_THAT(refusal(Tekken("", TekkenVocab(255))), Catch::Contains("no token for byte 255"));
  CHECK_THAT(refusal(Tekken("", R"([{"rank": 1, "token_bytes": "YQ=="}])")),
             Catch::Contains("vocab[0] must have the rank 0"));
  CHECK_THAT(refusal(Tekken("", R"([{"rank": 0, "token_bytes": "!"}])")),
             Catch::Contains("token_bytes of vocab[0] is not base64"));
  const std::string twice =
      R"([{"rank": 0, "token_bytes": "YQ=="}, {"rank": 1, "token_bytes": "YQ=="}])";
  CHECK_THAT(refusal(Tekken("", twice)), Catch::Contains("vocab[1] occurs twice"));
  CHECK_THAT(refusal(Tekken(R"(, "default_num_special_tokens": 3)")),
             Catch::Contains("there are 20 special tokens"));
  CHECK_THAT(refusal(Tekken(R"(, "default_vocab_size": -1)")), Catch::Contains("a count"));
  for (const char* special :
       {R"([{"rank": 1, "token_str": "<s>"}])", R"([{"rank": 0}])",
        R"([{"rank": 0, "token_str": "a"}, {"rank": 0, "token_str": "b"}])"}) {
    CHECK_THAT(refusal(Tekken("", TekkenVocab(), R"(, "special_tokens": )" + std::string(special))),
               Catch::Contains("special_tokens must have the ranks 0 to"));
  }
}

TEST_CASE("Lists of tokens are refused by file and line, or by class") {
  const File vocab = {"vocab.json", R"({"a": 0, "b": 1, "ab": 2})"};
  const File merges = {"merges.txt", "#version: 0.2\na b\n"};
  const auto config = [](const std::string& name) {
    return File{"tokenizer_config.json", R"({"tokenizer_class": ")" + name + "\"}"};
  };
  CHECK(Load({vocab, merges}).ok());
  CHECK(Load({vocab, merges, config("GPT2TokenizerFast")}).ok());
  CHECK_THAT(Load({vocab, merges, config("Strange")}).message(),
             Catch::Contains("\"Strange\" with vocab.json") && Catch::Contains("Qwen2Tokenizer"));
  CHECK(Load({vocab, merges, config("Strange")}).code() == StatusCode::kUnimplemented);
  CHECK_THAT(Load({vocab}).message(), Catch::Contains("merges.txt"));
  CHECK_THAT(Load({vocab, {"merges.txt", "a b\na b b\n"}}).message(),
             Catch::Contains("merges.txt line 2"));
  CHECK_THAT(Load({vocab, {"merges.txt", "a \xff\n"}}).message(), Catch::Contains("not UTF-8"));
  CHECK_FALSE(Load({vocab, {"merges.txt", "a c\n"}}).ok());
  CHECK_FALSE(Load({{"vocab.json", "[]"}, merges}).ok());
  const File words = {"vocab.txt", "[UNK]\na\n##b\n"};
  CHECK(Load({words}).ok());
  CHECK_THAT(Load({words, config("Strange")}).message(), Catch::Contains("with vocab.txt"));
  CHECK_THAT(Load({{"vocab.txt", "\xff\n"}}).message(), Catch::Contains("not UTF-8"));
}

TEST_CASE("Other tokenizers' files are refused by name, older files beside them are checked") {
  CHECK(Load({}).code() == StatusCode::kNotFound);
  const TempFolder folder;
  CHECK_FALSE(HasTokenizerFile(folder.path()));
  CHECK_FALSE(HasTokenizerFile("/no/such/folder"));
  folder.Write("tekken.json", "");
  CHECK(HasTokenizerFile(folder.path()));
  for (const char* name : {"tokenizer.tok.json", "sentencepiece.bpe.model", "merges.txt"}) {
    const Status status = Load({{name, ""}});
    CHECK(status.code() == StatusCode::kUnimplemented);
    CHECK_THAT(status.message(), Catch::Contains(name));
  }
  const Status xlnet =
      Load({{"spiece.model", ""},
            {"tokenizer_config.json", R"({"tokenizer_class": "XLNetTokenizer"})"}});
  CHECK_THAT(xlnet.message(), Catch::Contains("\"XLNetTokenizer\" with spiece.model"));
  const File words = {"vocab.txt", "[UNK]\n"};
  CHECK_THAT(Load({words, {"special_tokens_map.json", "["}}).message(),
             Catch::Contains("special_tokens_map.json: not a JSON object"));
  CHECK_THAT(Load({words, {"added_tokens.json", R"({"x": -1})"}}).message(),
             Catch::Contains("added_tokens.json: id of \"x\""));
}

}  // namespace
}  // namespace tandem
