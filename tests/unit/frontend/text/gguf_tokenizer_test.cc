#include "frontend/text/tokenizer.h"
#include "tests/support/files/gguf_bytes.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Contains;
using Ids = std::vector<TokenId>;

StatusOr<std::shared_ptr<const Tokenizer>> Load(const GgufBytes& bytes) {
  const TempFolder folder;
  folder.Write("m.gguf", bytes.Build());
  return Tokenizer::Load(folder.PathOf("m.gguf"));
}

std::string RefusalOf(const GgufBytes& bytes) { return Load(bytes).status().message(); }

Ids Encode(const GgufBytes& bytes, std::string_view text, bool add_special_tokens = false) {
  const auto tokenizer = Load(bytes);
  INFO(tokenizer.status().message());
  REQUIRE(tokenizer.ok());
  return (*tokenizer)->Encode(text, add_special_tokens).value();
}

GgufBytes Tokens(const std::string& model, const std::vector<std::string>& tokens,
                 const std::vector<int32_t>& types) {
  GgufBytes bytes;
  bytes.String("tokenizer.ggml.model", model)
      .Strings("tokenizer.ggml.tokens", tokens)
      .Integers("tokenizer.ggml.token_type", types);
  return bytes;
}

// a, b, c, 1, 2, a blank and its merges; <end> is a control token, [tool] one of the user's.
GgufBytes ByteLevel() {
  return Tokens("gpt2",
                {"a", "b", "c", "1", "2", "\u0120", "ab", "\u0120a", "12", "<end>", "[tool]"},
                {1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 4})
      .Strings("tokenizer.ggml.merges", {"a b", "\u0120 a", "1 2"})
      .Integer("tokenizer.ggml.eos_token_id", 9);
}

TEST_CASE("GGUF tokenizer: byte-level BPE cuts text as its name says") {
  const auto with = [](const char* pre) { return ByteLevel().String("tokenizer.ggml.pre", pre); };
  CHECK(Encode(with("gpt-2"), "ab a12") == Ids{6, 7, 8});
  CHECK(Encode(with("qwen2"), "ab a12") == Ids{6, 7, 3, 4});
  CHECK(Encode(with("starcoder"), "ab a12") == Ids{6, 7, 3, 4});
  CHECK(Encode(with("qwen35"), "ab a12") == Ids{6, 7, 3, 4});
  for (const char* pre : {"lfm2", "exaone4", "kimi-k2", "default"}) {
    CHECK(Encode(with(pre), "ab a12") == Ids{6, 7, 8});
  }
  for (const char* pre : {"deepseek-llm", "deepseek-coder", "seed-coder"}) {
    CHECK(Encode(with(pre), "ab a12").size() == (std::string(pre) == "deepseek-llm" ? 3 : 4));
  }
  // Three digits at a time, of a file that names no way, too.
  CHECK(Encode(with("default"), "2212") == Ids{4, 4, 3, 4});
  CHECK(Encode(ByteLevel(), "2212") == Ids{4, 4, 3, 4});
  CHECK(Encode(with("gpt-2"), "2212") == Ids{4, 4, 8});
  CHECK(Encode(with("llama-bpe"), "12<end>b[tool]") == Ids{8, 9, 1, 10});
  CHECK_THAT(RefusalOf(with("klingon")),
             Contains("tokenizer.ggml.pre \"klingon\" is not supported; supported: default,"));
  const auto tokenizer = Load(with("gpt-2"));
  REQUIRE(tokenizer.ok());
  CHECK((*tokenizer)->Decode(Ids{6, 9, 7, 10}, true) == "ab a[tool]");
  CHECK((*tokenizer)->eos_id() == 9);
}

TEST_CASE("GGUF tokenizer: which tokens stand around a text") {
  const auto with_bos = [] {
    return ByteLevel()
        .Integer("tokenizer.ggml.bos_token_id", 9)
        .String("tokenizer.ggml.pre", "gpt-2");
  };
  CHECK(Encode(with_bos(), "a", true) == Ids{0});
  CHECK(Encode(with_bos().Bool("tokenizer.ggml.add_bos_token", true), "a", true) == Ids{9, 0});
  CHECK(Encode(with_bos().Bool("tokenizer.ggml.add_eos_token", true), "a", true) == Ids{0, 9});
  CHECK(Encode(ByteLevel()
                   .Integer("tokenizer.ggml.bos_token_id", 9)
                   .String("tokenizer.ggml.pre", "llama-bpe"),
               "a", true) == Ids{9, 0});
  // -1 is none; a token for padding that is none is not needed.
  CHECK(Encode(ByteLevel()
                   .Integer("tokenizer.ggml.bos_token_id", UINT32_MAX)
                   .Integer("tokenizer.ggml.padding_token_id", 32000)
                   .String("tokenizer.ggml.pre", "llama-bpe"),
               "a", true) == Ids{0});
}

GgufBytes Pieces(const std::string& model) {
  return Tokens(model,
                {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "\u2581a", "ab", "<0x0A>", "<sep>"},
                {2, 3, 3, 1, 1, 1, 1, 1, 6, 4})
      .Floats("tokenizer.ggml.scores", {0, 0, 0, -3, -4, -5, -1, -2, 0, 0})
      .Integer("tokenizer.ggml.bos_token_id", 1)
      .Integer("tokenizer.ggml.eos_token_id", 2);
}

TEST_CASE("GGUF tokenizer: SentencePiece by its scores") {
  CHECK(Encode(Pieces("llama"), "ab", true) == Ids{1, 6, 5});
  CHECK(Encode(Pieces("llama").Bool("tokenizer.ggml.add_space_prefix", false), "ab") == Ids{7});
  CHECK(Encode(Pieces("llama"), "a\n  a") == Ids{6, 8, 3, 6});
  CHECK(Encode(Pieces("llama"), "a<sep>b</s>") == Ids{6, 9, 3, 5, 2});
  CHECK(Encode(Pieces("t5"), "a  b", true) == Ids{6, 3, 5, 2});
  CHECK((*Load(Pieces("llama")))->Decode(Ids{1, 6, 5, 8, 6}, true) == "ab\n a");
}

// Two newlines are a token that no merge makes; c has no token, but its byte has.
GgufBytes Characters(const std::vector<std::string>& merges) {
  return Tokens("gemma4",
                {"<unk>", "<bos>", "<eos>", "\u2581", "a", "b", "\u2581a", "ab", "\n", "\n\n",
                 "<0x63>", "<tool>"},
                {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 6, 4})
      .Strings("tokenizer.ggml.merges", merges)
      .Integer("tokenizer.ggml.bos_token_id", 1);
}

TEST_CASE("GGUF tokenizer: BPE of characters, and newlines apart") {
  const auto plain = [] { return Characters({"\u2581 a", "a b"}); };
  CHECK(Encode(plain(), " a ab") == Ids{6, 6, 5});
  CHECK(Encode(plain(), "ab", true) == Ids{1, 7});
  CHECK(Encode(plain(), "b\n\nab") == Ids{5, 9, 7});
  CHECK(Encode(plain(), "\n\n\n") == Ids{9, 8});
  CHECK(Encode(plain(), "<0x63>") == Ids{0});
  CHECK(Encode(plain(), "c<tool>") == Ids{10, 11});
  CHECK(Encode(plain(), "zz") == Ids{0});
  const auto tokenizer = Load(plain());
  REQUIRE(tokenizer.ok());
  CHECK((*tokenizer)->Decode(Ids{6, 6, 5, 9, 10, 11}, true) == " a ab\n\nc<tool>");
  CHECK_THAT(RefusalOf(Characters({"ab"})), Contains("tokenizer.ggml.merges: entry 0"));
  CHECK_FALSE(Load(Characters({"a q"})).ok());
}

TEST_CASE("GGUF tokenizer: WordPiece, whose words are marked") {
  const GgufBytes bytes =
      Tokens("bert", {"[CLS]", "[SEP]", "[UNK]", "\u2581play", "ing"}, {3, 3, 3, 1, 1})
          .Integer("tokenizer.ggml.cls_token_id", 0)
          .Integer("tokenizer.ggml.seperator_token_id", 1)
          .Integer("tokenizer.ggml.unknown_token_id", 2);
  CHECK(Encode(bytes, "Playing ing", true) == Ids{0, 3, 4, 2, 1});
}

TEST_CASE("GGUF tokenizer: what is malformed or unknown is refused by name") {
  CHECK_THAT(RefusalOf(GgufBytes().String("a", "b")), Contains("tokenizer.ggml.model \"\""));
  CHECK_THAT(
      RefusalOf(Tokens("rwkv", {"a"}, {1})),
      Contains("tokenizer.ggml.model \"rwkv\" is not supported; supported: bert, gemma4, gpt2"));
  CHECK_THAT(RefusalOf(Tokens("llama", {}, {})), Contains("tokenizer.ggml.tokens must be"));
  CHECK_THAT(RefusalOf(Tokens("llama", {"a", "b"}, {1})), Contains("each of the 2 tokens"));
  CHECK_THAT(RefusalOf(Tokens("llama", {"\xFF"}, {1})), Contains("token 0 is not UTF-8"));
  CHECK_THAT(RefusalOf(ByteLevel().Integer("tokenizer.ggml.bos_token_id", 11)),
             Contains("tokenizer.ggml.bos_token_id is 11, there are 11 tokens"));
  CHECK_THAT(RefusalOf(Tokens("gpt2", {"a"}, {1}).Strings("tokenizer.ggml.merges", {"a"})),
             Contains("entry 0 must be two tokens"));
  CHECK_FALSE(Load(Tokens("gpt2", {"a"}, {1}).Strings("tokenizer.ggml.merges", {"a x"})).ok());
  for (const char* kind : {"gpt2", "gemma4"}) {
    CHECK_THAT(RefusalOf(Tokens(kind, {"a"}, {1})),
               Contains("key tokenizer.ggml.merges is missing; name the tokenizer's folder by "));
  }
  CHECK_THAT(RefusalOf(ByteLevel().String("tokenizer.chat_template", "\xC3")),
             Contains("tokenizer.chat_template is not UTF-8"));
}

TEST_CASE("GGUF tokenizer: chat templates have names") {
  const auto bytes = ByteLevel()
                         .String("tokenizer.chat_template", "D")
                         .String("tokenizer.chat_template.tool_use", "T");
  CHECK(Load(bytes).value()->chat_templates() ==
        std::map<std::string, std::string>{{"default", "D"}, {"tool_use", "T"}});
}

}  // namespace
}  // namespace tandem
