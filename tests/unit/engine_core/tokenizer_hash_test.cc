#include "engine_core/tokenizer_hash.h"

#include <string>

#include "tests/support/files/gguf_bytes.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("TokenizerHash is of the file that the frontend would read") {
  const TempFolder folder;
  CHECK_FALSE(TokenizerHash(folder.path()).has_value());
  CHECK_FALSE(TokenizerHash("/no/such/folder").has_value());
  folder.Write("qwen.tiktoken", "IQ== 0");
  const auto of_tiktoken = TokenizerHash(folder.path());
  REQUIRE(of_tiktoken.has_value());
  folder.Write("config.json", "{}");
  CHECK(TokenizerHash(folder.path()) == of_tiktoken);
  folder.Write("tokenizer.json", "{}");
  const auto of_json = TokenizerHash(folder.path());
  CHECK(of_json != of_tiktoken);
  folder.Write("qwen.tiktoken", "Ig== 0");
  CHECK(TokenizerHash(folder.path()) == of_json);
  folder.Write("tokenizer.json", "{ }");
  CHECK(TokenizerHash(folder.path()) != of_json);
}

TEST_CASE("TokenizerHash is of each file that stands in for tokenizer.json") {
  for (const char* name : {"tokenizer.model", "tiktoken.model", "tekken.json", "spiece.model",
                           "vocab.json", "merges.txt", "vocab.txt"}) {
    CAPTURE(name);
    const TempFolder folder;
    folder.Write(name, "a");
    const auto hash = TokenizerHash(folder.path());
    REQUIRE(hash.has_value());
    folder.Write(name, "b");
    CHECK(TokenizerHash(folder.path()) != hash);
  }
}

TEST_CASE("TokenizerHash of a GGUF file is of its keys for the tokenizer") {
  const TempFolder folder;
  const auto hash_of = [&folder](const std::string& token, const std::string& name) {
    folder.Write(
        "m.gguf",
        GgufBytes().String("general.name", name).Strings("tokenizer.ggml.tokens", {token}).Build());
    const auto hash = TokenizerHash(folder.PathOf("m.gguf"));
    REQUIRE(hash.has_value());
    CHECK(TokenizerHash(folder.path()) == hash);
    return *hash;
  };
  CHECK(hash_of("a", "x") == hash_of("a", "y"));
  CHECK(hash_of("a", "x") != hash_of("b", "x"));
}

}  // namespace
}  // namespace tandem
