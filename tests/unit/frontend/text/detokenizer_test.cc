#include "frontend/text/detokenizer.h"

#include "frontend/text/tokenizer.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Single bytes of "你" (E4 BD A0), of U+FFFD (EF BF BD), a letter and two added tokens.
constexpr const char* kTokenizer = R"json({
  "added_tokens": [{"id": 7, "content": "<é>", "special": true},
                   {"id": 8, "content": "é", "special": false}],
  "pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "merges": [],
    "vocab": {"ä": 0, "½": 1, "ł": 2, "ï": 3, "¿": 4, "a": 5, "¿½": 6}}})json";

// The bytes of "你", a letter, a blank and an added token, for a decoder like Llama-2's.
constexpr const char* kFallback = R"json({
  "added_tokens": [{"id": 6, "content": "</s>", "special": true, "normalized": false}],
  "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "merges": [], "vocab": {
    "<0xE4>": 0, "<0xBD>": 1, "<0xA0>": 2, "a": 3, "▁": 4, "": 5, "\uFFFD": 7}}})json";

std::string Deltas(DetokenizerOptions options, std::vector<TokenId> prompt,
                   const std::vector<TokenId>& ids, const char* file = kTokenizer) {
  const auto tokenizer = Tokenizer::Parse(file, "").value();
  Detokenizer detokenizer(*tokenizer, options, prompt);
  std::string all;
  for (const TokenId id : ids) {
    detokenizer.Append(id, &all);
    all += '|';
  }
  detokenizer.Flush(&all);
  return all;
}

TEST_CASE("Detokenizer emits a character when its last byte arrives") {
  CHECK(Deltas({}, {}, {5, 0, 1, 2, 5}) == "a|||你|a|");
}

TEST_CASE("Detokenizer holds a real U+FFFD until the next character or the end") {
  CHECK(Deltas({}, {}, {3, 6, 5}) == "||\uFFFDa|");
  CHECK(Deltas({}, {}, {3, 6}) == "||\uFFFD");
}

TEST_CASE("Detokenizer completes a character that the prompt left unfinished") {
  CHECK(Deltas({}, {5, 0, 1}, {2}) == "你|");
  CHECK(Deltas({}, {0, 1, 2}, {5}) == "a|");
}

TEST_CASE("Detokenizer leaves special tokens out only with skip_special_tokens") {
  CHECK(Deltas({true, true}, {}, {5, 7, 5}) == "a||a|");
  CHECK(Deltas({false, true}, {}, {5, 7, 5}) == "a|<\uFFFD>|a|");
}

TEST_CASE("Detokenizer spells the second of two added tokens when no spaces are wanted between") {
  CHECK(Deltas({false, false}, {}, {8, 8, 5}) == "|\uFFFDé|a|");
}

TEST_CASE("Detokenizer bounds what it holds back") {
  const auto tokenizer = Tokenizer::Parse(kTokenizer, "").value();
  Detokenizer detokenizer(*tokenizer, {}, {});
  std::string all;
  for (int i = 0; i < 1000; ++i) detokenizer.Append(0, &all);
  CHECK(all.size() / 3 + Detokenizer::kMaxHeldBytes >= 1000);
  detokenizer.Flush(&all);
  CHECK(all.size() == 3000);
}

TEST_CASE("Detokenizer shows a character of byte tokens when its last byte arrives") {
  CHECK(Deltas({}, {}, {3, 0, 1, 2, 3}, kFallback) == "a|||你|a|");
  CHECK(Deltas({}, {}, {0, 1, 2, 0, 1, 2}, kFallback) == "||你|||你|");
}

TEST_CASE(
    "Detokenizer shows each byte of a broken run as U+FFFD, whole, and what it showed stays") {
  CHECK(Deltas({}, {}, {0, 1, 3}, kFallback) == "||\uFFFD\uFFFDa|");
  CHECK(Deltas({}, {}, {0, 1, 2, 2, 3}, kFallback) == "||你||\uFFFDa|");
  CHECK(Deltas({}, {}, {2, 0, 1, 2, 3, 3}, kFallback) == "||||\uFFFD\uFFFD\uFFFD\uFFFDa|a|");
  CHECK(Deltas({}, {}, {0, 1}, kFallback) == "||\uFFFD\uFFFD");
  CHECK(Deltas({}, {}, {7, 5, 3}, kFallback) == "||\uFFFDa|");
}

TEST_CASE("Detokenizer completes the run of byte tokens that the prompt leaves unfinished") {
  CHECK(Deltas({}, {3, 0, 1}, {2, 3}, kFallback) == "你|a|");
  CHECK(Deltas({}, {3, 0, 1}, {3}, kFallback) == "\uFFFD\uFFFDa|");
  CHECK(Deltas({}, {3, 2}, {0, 1, 2, 3}, kFallback) == "|||\uFFFD\uFFFD\uFFFDa|");
}

TEST_CASE("Detokenizer strips the first blank of a text, not of a continued prompt") {
  CHECK(Deltas({}, {}, {4, 4, 3}, kFallback) == "| |a|");
  CHECK(Deltas({}, {3}, {4, 3}, kFallback) == " |a|");
  CHECK(Deltas({}, {6}, {4, 3}, kFallback) == "|a|");
  CHECK(Deltas({false, true}, {6}, {4, 3}, kFallback) == " |a|");
  CHECK(Deltas({false, false}, {}, {6, 6, 4}, kFallback) == "</s>|</s>| |");
}

TEST_CASE("Detokenizer ignores ids without a token") {
  CHECK(Deltas({}, {}, {99, -1, 5}) == "||a|");
}

}  // namespace
}  // namespace tandem
