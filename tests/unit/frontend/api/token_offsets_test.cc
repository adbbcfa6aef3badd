#include "frontend/api/token_offsets.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

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

// A tokenizer of few tokens; post: its post-processor.
std::shared_ptr<const Tokenizer> Small(bool puts_blank, const std::string& post) {
  const std::string spec = R"json({"added_tokens": [{"id": 0, "content": "<s>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": )json" +
                           std::string(puts_blank ? "true" : "false") +
                           R"json(}, "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE",
    "vocab": {"a": 1, "b": 2, "Ġ": 3, "Ã": 4, "©": 5, "Ċ": 6, "Ġa": 7, "ĠĠ": 8, "Ġb": 9},
    "merges": ["Ġ a", "Ġ Ġ", "Ġ b"]}, "post_processor": )json" +
                           post + "}";
  return Tokenizer::Parse(spec, "{}").value();
}

// The expected ranges are what the `tokenizers` library (0.23) returns for the same files.
TEST_CASE("blanks are in offsets or trimmed, as the post-processor says") {
  using Ranges = std::vector<std::pair<size_t, size_t>>;
  const std::string whole = R"({"type": "ByteLevel", "trim_offsets": false})";
  const std::string trimmed = R"({"type": "ByteLevel", "trim_offsets": true})";
  const std::string strict = R"({"type": "ByteLevel", "add_prefix_space": false})";
  const std::string roberta =
      R"({"type": "RobertaProcessing", "sep": ["<s>", 0], "cls": ["<s>", 0]})";
  struct Case {
    bool puts_blank;
    std::string post;
    std::string text;
    Ranges ranges;
  };
  const std::string accent = " é  ";
  for (const Case& c : std::vector<Case>{
           {false, whole, "a b", {{0, 1}, {1, 3}}},
           {false, whole, accent, {{0, 1}, {1, 2}, {1, 2}, {2, 4}}},
           {false, trimmed, "a b", {{0, 1}, {2, 3}}},
           {false, trimmed, " a", {{0, 2}}},
           {false, trimmed, "  ", {{2, 2}}},
           {false, trimmed, accent, {{0, 0}, {1, 2}, {1, 2}, {4, 4}}},
           {false, strict, " a", {{1, 2}}},
           {false, strict, accent, {{1, 1}, {1, 2}, {1, 2}, {4, 4}}},
           {true, whole, "a", {{0, 1}}},
           {true, whole, " a", {{0, 2}}},
           {true, whole, "\na", {{0, 1}, {0, 1}, {1, 2}}},
           {true, trimmed, "a b", {{0, 1}, {2, 3}}},
           {true, trimmed, "\na", {{0, 0}, {0, 1}, {1, 2}}},
           {true, roberta, "a b", {{0, 0}, {0, 1}, {2, 3}, {0, 0}}},
           {true, roberta, accent, {{0, 0}, {0, 0}, {1, 2}, {1, 2}, {4, 4}, {0, 0}}},
       }) {
    CAPTURE(c.puts_blank, c.post, c.text);
    const auto tokenizer = Small(c.puts_blank, c.post);
    const auto offsets = TokenOffsets(*tokenizer, *tokenizer->Encode(c.text, true), c.text);
    REQUIRE(offsets);
    CHECK(*offsets == c.ranges);
  }
}

}  // namespace
}  // namespace tandem
