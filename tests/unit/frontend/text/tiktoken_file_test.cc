// What a tiktoken file is refused for, and where special tokens come from. That ids are right is
// checked by tests/golden/tokenizers_test.cc.

#include "frontend/text/tiktoken_file.h"

#include <string>

#include "frontend/text/tokenizer.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::string Base64(unsigned char byte) {
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  return std::string{kAlphabet[byte >> 2], kAlphabet[(byte & 3) << 4], '=', '='};
}

// Every byte, and "ab".
std::string Ranks() {
  std::string file;
  for (int byte = 0; byte < 256; ++byte) {
    file += Base64(static_cast<unsigned char>(byte)) + " " + std::to_string(byte) + "\n";
  }
  return file + "YWI= 256\n";
}

TokenizerConfig Config(const std::string& json) { return ParseTokenizerConfig(json).value(); }
const TokenizerConfig kQwen = Config(R"({"tokenizer_class": "QWenTokenizer"})");

TEST_CASE("A tiktoken file differs from SentencePiece's by its first line") {
  CHECK(IsTiktokenFile(Ranks()));
  CHECK(IsTiktokenFile("YWI= 0\r\nYWM= 1\r\n"));
  CHECK_FALSE(IsTiktokenFile(""));
  CHECK_FALSE(IsTiktokenFile("\n\x0e\n\x05<unk>\x15"));
  CHECK_FALSE(IsTiktokenFile("not base64! 1\n"));
}

TEST_CASE("A malformed tiktoken file is refused with the line") {
  const auto refusal = [](const std::string& bytes) {
    const auto file = ParseTiktokenFile(bytes, kQwen);
    REQUIRE_FALSE(file.ok());
    return file.status().message();
  };
  CHECK_THAT(refusal(Ranks() + "YWI=\n"), Catch::StartsWith("line 258: must be a token"));
  CHECK_THAT(refusal(Ranks() + "!! 300\n"), Catch::StartsWith("line 258: the token is not"));
  CHECK_THAT(refusal(Ranks() + "YWM= 99999999999\n"), Catch::StartsWith("line 258: the rank"));
  CHECK_THAT(refusal(Ranks() + "YWM= -1\n"), Catch::StartsWith("line 258: the rank"));
  CHECK_THAT(refusal(Ranks() + "YWM= 256\n"), Catch::Contains("the rank occurs twice"));
  CHECK_THAT(refusal(Ranks() + "YWI= 257\n"), Catch::Contains("the token occurs twice"));
  CHECK_THAT(refusal("YWI= 0\n"), Catch::Contains("no token for byte 0"));
}

TEST_CASE("A tiktoken file of an unknown family is refused by name") {
  const auto unknown = ParseTiktokenFile(Ranks(), Config(R"({"tokenizer_class": "Strange"})"));
  CHECK(unknown.status().code() == StatusCode::kUnimplemented);
  CHECK_THAT(unknown.status().message(),
             Catch::Contains("Strange") && Catch::Contains("QWenTokenizer"));
  CHECK_THAT(ParseTiktokenFile(Ranks(), Config("{}")).status().message(),
             Catch::Contains("tokenizer_class"));
  CHECK_THAT(ParseTiktokenFile(Ranks(), Config(R"({"tokenizer_class": "ChatGLM4Tokenizer"})"))
                 .status()
                 .message(),
             Catch::Contains("[gMASK]"));
}

TEST_CASE("Special tokens of tokenizer_config.json win over the family's") {
  const TempFolder folder;
  folder.Write("any.tiktoken", Ranks());
  folder.Write("tokenizer_config.json", R"({
    "tokenizer_class": "QWenTokenizer", "eos_token": "<|end|>",
    "added_tokens_decoder": {"258": {"content": "<|end|>", "special": true}}})");
  const auto tokenizer = Tokenizer::Load(folder.path());
  REQUIRE(tokenizer.ok());
  CHECK((*tokenizer)->eos_id() == 258);
  CHECK((*tokenizer)->TokenToId("<|endoftext|>") == 257);
  CHECK((*tokenizer)->TokenToId("<|im_start|>") == std::nullopt);
  CHECK((*tokenizer)->TokenToId("<|extra_204|>") == 256 + 208);
  CHECK((*tokenizer)->Encode("ab<|end|>", true).value() == std::vector<TokenId>{256, 258});
  CHECK((*tokenizer)->IsSpecial(257));
}

TEST_CASE("Two files of ranks are refused, for either may be the model's") {
  const TempFolder folder;
  folder.Write("a.tiktoken", Ranks());
  folder.Write("tokenizer.model", Ranks());
  CHECK_THAT(Tokenizer::Load(folder.path()).status().message(),
             Catch::Contains("both a.tiktoken and tokenizer.model"));
}

}  // namespace
}  // namespace tandem
