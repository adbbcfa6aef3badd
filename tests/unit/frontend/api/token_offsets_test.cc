#include "frontend/api/token_offsets.h"

#include <string>

#include "tests/support/api_model.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Characters, by their beginnings in bytes.
std::vector<std::string> Characters(std::string_view text) {
  std::vector<std::string> all;
  for (const char byte : text) {
    if ((byte & 0xc0) != 0x80) all.emplace_back();
    all.back() += byte;
  }
  return all;
}

TEST_CASE("the offsets of tokens are the characters whose bytes they have") {
  const ApiModel model;
  const Tokenizer& tokenizer = model.tokenizer();
  for (const std::string text : {"The quick brown fox", "é 日本語 \xf0\x9f\xa6\x8a!", "", " x"}) {
    CAPTURE(text);
    const auto ids = *tokenizer.Encode(text, false);
    const auto offsets = TokenOffsets(tokenizer, ids, text);
    REQUIRE(offsets);
    REQUIRE(offsets->size() == ids.size());
    const std::vector<std::string> characters = Characters(text);
    size_t end = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto [first, last] = (*offsets)[i];
      REQUIRE(last <= characters.size());
      std::string shown;
      for (size_t c = first; c < last; ++c) shown += characters[c];
      CHECK(shown.find(tokenizer.TokenBytes(ids[i])) != shown.npos);
      CHECK((first == end || first + 1 == end));
      end = last;
    }
    CHECK(end == characters.size());
  }
}

TEST_CASE("tokens whose bytes are not the text have no offsets") {
  const ApiModel model;
  const auto ids = *model.tokenizer().Encode("The quick", false);
  CHECK_FALSE(TokenOffsets(model.tokenizer(), ids, "The quick brown"));
  CHECK_FALSE(TokenOffsets(model.tokenizer(), ids, "the quick"));
}

}  // namespace
}  // namespace tandem
