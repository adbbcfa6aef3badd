// Any chunking releases the same text as a search of the whole text, and holds back no more than it
// must.

#include <algorithm>
#include <random>

#include "frontend/text/stop_strings.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Expected {
  std::string output;
  std::string stop;  // empty: no match
};

// The obvious way: the occurrence that ends first wins, then the one listed first.
Expected SearchWhole(const std::string& text, const std::vector<std::string>& stops, size_t from,
                     bool include) {
  size_t best_end = std::string::npos;
  const std::string* best = nullptr;
  for (const std::string& stop : stops) {
    for (size_t at = text.find(stop); at != std::string::npos; at = text.find(stop, at + 1)) {
      const size_t end = at + stop.size();
      if (end <= from) continue;
      if (end < best_end) {
        best_end = end;
        best = &stop;
      }
      break;
    }
  }
  if (best == nullptr) return {text, ""};
  return {text.substr(0, include ? best_end : best_end - best->size()), *best};
}

size_t LongestHold(const std::string& text, const std::vector<std::string>& stops) {
  size_t hold = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
      if (text.compare(text.size() - n, n, stop, 0, n) == 0) hold = std::max(hold, n);
    }
  }
  return hold;
}

TEST_CASE("StopStrings equals a search of the full text under any chunking") {
  const uint32_t seed = GENERATE(range(1u, 3001u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const auto word = [&](int size) {
    std::string text;
    for (int i = 0; i < size; ++i) text += static_cast<char>('a' + draw(0, seed % 2 ? 1 : 2));
    return text;
  };
  std::vector<std::string> stops;
  for (int i = draw(1, 4); i > 0; --i) stops.push_back(word(draw(1, 7)));
  const std::string text = word(draw(0, 60));
  const bool include = draw(0, 1) == 1;
  const size_t min_bytes = draw(0, 2) == 0 ? draw(0, 30) : 0;

  StopStrings matcher(stops, include);
  std::string released;
  std::string matched;
  size_t may_stop_from = 0;
  size_t pos = 0;
  while (pos < text.size() && matched.empty()) {
    const size_t size = std::min<size_t>(draw(0, 6), text.size() - pos);
    const bool may_stop = pos >= min_bytes;
    if (!may_stop) may_stop_from = pos + size;
    const auto match = matcher.Append(text.substr(pos, size), may_stop, &released);
    pos += size;
    if (match) {
      matched = *match;
    } else {
      const size_t hold = LongestHold(text.substr(0, pos), stops);
      REQUIRE(released == text.substr(0, pos - hold));
    }
  }
  if (matched.empty()) matcher.Flush(&released);
  const Expected expected = SearchWhole(text, stops, may_stop_from, include);
  CAPTURE(text, stops, may_stop_from);
  CHECK(matched == expected.stop);
  CHECK(released == expected.output);
}

}  // namespace
}  // namespace tandem
