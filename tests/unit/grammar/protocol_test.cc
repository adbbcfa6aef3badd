#include "grammar/protocol.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tandem {
namespace {

TEST_CASE("a spec is packed and unpacked, and differs from one with other options") {
  const GrammarSpec spec = {GrammarKind::kRegex, JsonBlanks::kNone, std::string("a\0b", 3)};
  const StatusOr<GrammarSpec> read = UnpackGrammarSpec(PackGrammarSpec(spec));
  REQUIRE(read.ok());
  CHECK(read->kind == GrammarKind::kRegex);
  CHECK(read->blanks == JsonBlanks::kNone);
  CHECK(read->text == spec.text);
  CHECK(PackGrammarSpec(spec) != PackGrammarSpec({spec.kind, JsonBlanks::kAny, spec.text}));
  for (const std::string packed : {"", "\x01", "\x04\x01x", "\x01\x04x", "\xff\x01"}) {
    CHECK_FALSE(UnpackGrammarSpec(packed).ok());
  }
}

TEST_CASE("steps go through a packet in order") {
  const std::vector<TokenId> tokens = {7, 8, 9}, drafts = {10, -1};
  std::vector<int32_t> packet;
  AppendStep({int64_t{-5} << 32 | 3, 4, true, tokens, 9, drafts}, &packet);
  AppendStep({12, kClosesMatcher, false, {}}, &packet);
  CHECK(packet.size() ==
        NumStepWords({0, 0, false, tokens, 0, drafts}) + NumStepWords({0, 0, false, {}}));
  std::span<const int32_t> left = packet;
  const auto first = TakeStep(&left);
  REQUIRE(first);
  CHECK(first->matcher_id == (int64_t{-5} << 32 | 3));
  CHECK(first->mask_row == 4);
  CHECK(first->allows_special_tokens);
  CHECK(first->max_run == 9);
  CHECK(std::vector<TokenId>(first->tokens.begin(), first->tokens.end()) == tokens);
  CHECK(std::vector<TokenId>(first->drafts.begin(), first->drafts.end()) == drafts);
  const auto second = TakeStep(&left);
  REQUIRE(second);
  CHECK(second->matcher_id == 12);
  CHECK(second->mask_row == kClosesMatcher);
  CHECK(left.empty());
}

TEST_CASE("a packet that is cut or lies about its tokens is refused") {
  std::vector<int32_t> packet;
  const std::vector<TokenId> tokens = {1, 2}, drafts = {3};
  AppendStep({1, 0, false, tokens, 0, drafts}, &packet);
  for (size_t size = 0; size < packet.size(); ++size) {
    std::span<const int32_t> left = std::span(packet).first(size);
    CHECK_FALSE(TakeStep(&left));
  }
  for (const size_t count : {4, 6}) {
    for (const int32_t lie : {-1, 3, INT32_MAX}) {
      const int32_t before = std::exchange(packet[count], lie);
      std::span<const int32_t> left = packet;
      CHECK_FALSE(TakeStep(&left));
      packet[count] = before;
    }
  }
}

}  // namespace
}  // namespace tandem
