#include "deploy/cli/sse_parser.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::vector<std::string> Parse(const std::vector<std::string_view>& pieces) {
  SseParser parser;
  std::vector<std::string> events;
  for (const std::string_view piece : pieces) {
    if (!parser.Feed(piece, [&events](std::string_view data) {
          events.emplace_back(data);
          return true;
        })) {
      break;
    }
  }
  return events;
}

TEST_CASE("SseParser gives the same events wherever the bytes are cut") {
  const std::string text =
      ": keep-alive\n\ndata: {\"a\":1}\n\ndata: x\r\ndata:y\r\n\r\ndata: [DONE]\n\ndata: late\n\n";
  const std::vector<std::string> expected = {"{\"a\":1}", "x\ny"};
  CHECK(Parse({text}) == expected);
  for (size_t first = 0; first < text.size(); ++first) {
    for (size_t second = first; second < text.size(); second += 7) {
      const std::string_view whole = text;
      REQUIRE(Parse({whole.substr(0, first), whole.substr(first, second - first),
                     whole.substr(second)}) == expected);
    }
  }
}

TEST_CASE("SseParser stops when the callback returns false") {
  SseParser parser;
  int seen = 0;
  CHECK_FALSE(
      parser.Feed("data: 1\n\ndata: 2\n\n", [&seen](std::string_view) { return ++seen < 1; }));
  CHECK(seen == 1);
}

}  // namespace
}  // namespace tandem
