#include "deploy/cli/top/screen.h"

#include <string>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

std::string Text(const std::vector<ScreenLine>& lines) {
  std::string text;
  for (const ScreenLine& line : lines) text += line.text + "\n";
  return text;
}

TEST_CASE("screen: a line has no control characters and whole characters only") {
  CHECK(FitLine("a\x1b[2Jb\tc\x7f", 99) == "a?[2Jb?c?");
  CHECK(FitLine("\xc2\x9b"
                "31m",
                99) == "?31m");  // CSI in one character
  CHECK(FitLine("größe", 4) == "größ");
  CHECK(FitLine("a\xff", 9) == "a\xef\xbf\xbd");
  CHECK(FitLine("abc", 0).empty());
}

TEST_CASE("screen: numbers fit their unit") {
  CHECK(SecondsText(0.0005) == "0.5 ms");
  CHECK(SecondsText(0.25) == "250 ms");
  CHECK(SecondsText(2) == "2.0 s");
  CHECK(SecondsText(180) == "3 min");
  CHECK(CountText(9999) == "9999");
  CHECK(CountText(12345) == "12.3k");
  CHECK(CountText(2.5e6) == "2.5M");
}

TEST_CASE("screen: without a server there is the problem alone") {
  const auto lines = DrawScreen("http://x", nullptr, History(), "no response");
  REQUIRE(lines.size() == 2);
  CHECK(lines[1].text == "no response");
  CHECK(lines[1].style == ScreenLine::Style::kProblem);
}

TEST_CASE("screen: engines, requests and what is not listed") {
  DashboardState state;
  state.model = "m";
  state.num_requests = 5;
  EngineState engine;
  engine.ready = true;
  engine.status = "ready";
  engine.kv_cache_usage = 0.001;
  engine.kv_blocks = 1000;
  engine.block_size = 16;
  state.engines = {engine, EngineState()};
  RequestState request;
  request.id = "chat-1";
  request.phase = "decoding";
  request.age_s = 3;
  request.ttft_s = 1;
  request.output_tokens = 21;
  request.max_output_tokens = 100;
  RequestState waiting;
  waiting.id = "evil\x1b]0;title\x07";
  state.requests = {request, waiting};
  const std::string text = Text(DrawScreen("http://x", &state, History(), ""));
  CHECK_THAT(text, Contains("1 of 2 engines ready"));
  CHECK_THAT(text, Contains("[#...................] 0.1% of 16.0k"));
  CHECK_THAT(text, Contains("chat-1"));
  CHECK_THAT(text, Contains("21 of 100"));
  CHECK_THAT(text, Contains("10.0"));  // 20 tokens after the first in 2 s
  CHECK_THAT(text, Contains("evil?]0;title?"));
  CHECK_THAT(text, Contains("and 3 more"));
  CHECK_THAT(text, !Contains("\x1b"));
}

}  // namespace
}  // namespace tandem
