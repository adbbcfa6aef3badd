#include "deploy/cli/bench/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

size_t Count(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Every element is closed, and none closes another.
bool IsBalanced(std::string_view svg) {
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != svg.npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    if (end == svg.npos) return false;
    const std::string_view tag = svg.substr(at + 1, end - at - 1);
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.emplace_back(tag.substr(0, tag.find_first_of(" \n")));
    }
  }
  return open.empty();
}

Chart TwoPanels() {
  return {
      .title = "a < b & \"c\"",
      .footnote = "note",
      .panels = {{"first (ms)", "load (1/s)", {{"x", {{1, 10}, {2, 30}}}, {"x", {{1, 20}}, true}}},
                 {"second", "load", {{"y", {{1, 1}, {64, 2}}}}}}};
}

TEST_CASE("A chart has its panels, lines, labels and a legend of names") {
  const std::string svg = RenderSvg(TwoPanels());
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(IsBalanced(svg));
  CHECK(Count(svg, "<polyline") == 3);
  CHECK(Count(svg, "stroke-dasharray") == 1);
  CHECK(Count(svg, "<circle") == 5);
  CHECK(Count(svg, ">first (ms)</text>") == 1);
  CHECK(Count(svg, ">load (1/s)</text>") == 1);
  CHECK(Count(svg, ">x</text>") == 1);  // two lines, one entry
  CHECK(Count(svg, ">y</text>") == 1);
  CHECK(Count(svg, ">note</text>") == 1);
  CHECK(Count(svg, "a &lt; b &amp; &quot;c&quot;") == 1);
  CHECK(Count(svg, ">64</text>") == 1);  // each load has a tick
}

TEST_CASE("Odd charts are drawn as well") {
  const std::vector<Chart> charts = {
      {},
      {.title = "t", .footnote = "", .panels = {{"p", "x", {}}}},
      {.title = "t", .footnote = "", .panels = {{"p", "x", {{"zero", {{0, 0}}}}}}},
      {.title = "t", .footnote = "", .panels = {{"p", "x", {{"one", {{5, 1e-9}}}}}}},
      {.title = "t", .footnote = "", .panels = {{"p", "x", {{"span", {{1e-3, 1}, {1e6, 1e12}}}}}}}};
  for (const Chart& chart : charts) {
    const std::string svg = RenderSvg(chart);
    CHECK(IsBalanced(svg));
    CHECK(Count(svg, "nan") == 0);
    CHECK(Count(svg, "inf") == 0);
  }
}

TEST_CASE("Ticks are round, begin at 0 and cover the greatest value") {
  CHECK(AxisTicks(10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(AxisTicks(0, 5).back() >= 1);
  for (double max = 1e-4; max < 1e6; max *= 1.37) {
    CAPTURE(max);
    const std::vector<double> ticks = AxisTicks(max, 5);
    CHECK(ticks.front() == 0);
    CHECK(ticks.back() >= max * 0.999);
    CHECK(ticks.size() >= 3);
    CHECK(ticks.size() <= 7);
  }
}

}  // namespace
}  // namespace tandem
