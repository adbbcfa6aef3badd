#pragma once

// Line charts as an SVG document: panels side by side, one legend below. Pure. Lengths are px.

#include <string>
#include <utility>
#include <vector>

namespace tandem {

struct ChartLine {
  std::string name;  // in the legend; lines of one name share colour and entry
  std::vector<std::pair<double, double>> points;  // (x, y), x ascending
  bool dashed = false;
};

struct ChartPanel {
  std::string title;    // what and unit: "Time to first token (ms)"
  std::string x_label;  // with its unit
  std::vector<ChartLine> lines;
};

struct Chart {
  std::string title;
  std::string footnote;  // what dashed lines are, …
  std::vector<ChartPanel> panels;
};

std::string RenderSvg(const Chart& chart);

// Round steps (1, 2 or 5 times a power of ten) from 0 to at least `max`, about `count` of them.
std::vector<double> AxisTicks(double max, int count);

}  // namespace tandem
