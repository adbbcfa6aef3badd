#include "deploy/cli/hub_name.h"

#include <string>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("hub names: what follows the colon is a quant or a revision") {
  CHECK(ParseHubName("org/name")->repository == "org/name");
  CHECK(ParseHubName("gpt2")->repository == "gpt2");
  CHECK(ParseHubName("gpt2:v1")->revision == "v1");
  for (const char* quant : {"Q4_K_M", "q8_0", "IQ4_XS", "UD-Q5_K_XL", "BF16", "f16", "MXFP4_MOE"}) {
    CAPTURE(quant);
    const auto name = ParseHubName("org/name:" + std::string(quant));
    CHECK(name->quant == quant);
    CHECK(name->revision.empty());
  }
  for (const char* revision : {"main", "v1.0", "refs/pr/1", "Q", "quant", "deadbeef"}) {
    CAPTURE(revision);
    const auto name = ParseHubName("org/name:" + std::string(revision));
    CHECK(name->revision == revision);
    CHECK(name->quant.empty());
  }
  for (const char* other :
       {"name/", "/name", "a/b/c", "/a/b", "./a", "../a", "a/..", "a/.b", "a--b/c",
        "a/b:", "a/b:../x", "a/b:x//y", "a b/c", "a/b.gguf", "org/", "/", "", "a/b:x:y"}) {
    CAPTURE(other);
    CHECK_FALSE(ParseHubName(other).has_value());
  }
}

TEST_CASE("hub names: GGUF files by quant, as llama.cpp chooses them") {
  CHECK(IsGgufOf("model-Q4_K_M.gguf", "q4_k_m"));
  CHECK(IsGgufOf("Q4_K_M/model-Q4_K_M-00001-of-00002.gguf", "Q4_K_M"));
  CHECK(IsGgufOf("model.Q4_K_M.gguf", "Q4_K_M"));
  CHECK_FALSE(IsGgufOf("model-Q4_K_M.gguf", "Q4_K"));
  CHECK_FALSE(IsGgufOf("model-BF16.gguf", "F16"));
  CHECK_FALSE(IsGgufOf("mmproj-model-F16.gguf", "F16"));
  CHECK_FALSE(IsGgufOf("model-Q8_0.safetensors", "Q8_0"));
  CHECK(QuantOf("a/model-UD-Q4_K_XL-00002-of-00003.gguf") == "UD-Q4_K_XL");
  CHECK(QuantOf("model.q8_0.gguf") == "Q8_0");
  CHECK(QuantOf("model.gguf").empty());
}

TEST_CASE("hub names: parts of split GGUF files") {
  const auto part = ParseGgufPart("a/m-00002-of-00003.gguf");
  REQUIRE(part.has_value());
  CHECK(part->stem == "a/m");
  CHECK(part->index == 2);
  CHECK(part->count == 3);
  for (const char* whole : {"m.gguf", "m-00000-of-00003.gguf", "m-00004-of-00003.gguf",
                            "m-0000a-of-00003.gguf", "-00001-of-00003.gguf", "m-00001-of-00003"}) {
    CAPTURE(whole);
    CHECK_FALSE(ParseGgufPart(whole).has_value());
  }
}

}  // namespace
}  // namespace tandem
