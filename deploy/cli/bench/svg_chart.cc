#include "deploy/cli/bench/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <string_view>

namespace tandem {
namespace {

constexpr double kPanelWidth = 400, kPanelHeight = 300;
constexpr double kLeft = 64, kRight = 16, kTop = 34, kBottom = 50;  // around a panel's axes
constexpr double kTitleHeight = 40, kLegendLine = 22, kMargin = 12;
constexpr int kNumYTicks = 5, kNumXTicks = 6;
constexpr size_t kMostOwnXTicks = 8;  // with more loads not each gets a tick
constexpr double kLogSpan = 12;  // loads further apart than this are drawn on a logarithmic axis
// Distinguishable for most colour-blind readers too (Okabe and Ito's palette).
constexpr std::string_view kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                        "#e69f00", "#56b4e9", "#000000", "#8c6d31"};

std::string Px(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string TickText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string Escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string Text(double x, double y, std::string_view anchor, std::string_view text,
                 std::string_view extra = "") {
  return "<text x=\"" + Px(x) + "\" y=\"" + Px(y) + "\" text-anchor=\"" + std::string(anchor) +
         "\"" + (extra.empty() ? "" : " ") + std::string(extra) + ">" + Escape(text) + "</text>\n";
}

std::string Line(double x1, double y1, double x2, double y2, std::string_view color) {
  return "<line x1=\"" + Px(x1) + "\" y1=\"" + Px(y1) + "\" x2=\"" + Px(x2) + "\" y2=\"" + Px(y2) +
         "\" stroke=\"" + std::string(color) + "\"/>\n";
}

// Names in order of first appearance; a name's index chooses its colour.
std::vector<std::string> LegendNames(const Chart& chart) {
  std::vector<std::string> names;
  for (const ChartPanel& panel : chart.panels) {
    for (const ChartLine& line : panel.lines) {
      if (std::find(names.begin(), names.end(), line.name) == names.end()) {
        names.push_back(line.name);
      }
    }
  }
  return names;
}

// Maps a panel's values to its pixels.
class Axes {
 public:
  Axes(const ChartPanel& panel, double left, double top) : left_(left), top_(top) {
    std::set<double> loads;
    double max_y = 0;
    for (const ChartLine& line : panel.lines) {
      for (const auto& [x, y] : line.points) {
        loads.insert(x);
        max_y = std::max(max_y, y);
      }
    }
    y_ticks_ = AxisTicks(max_y, kNumYTicks);
    if (loads.empty()) loads = {0, 1};
    const double first = *loads.begin(), last = *loads.rbegin();
    log_ = first > 0 && last > kLogSpan * first;
    if (log_) {
      low_ = std::log(first);
      high_ = std::log(last);
      x_ticks_.assign(loads.begin(), loads.end());
      if (loads.size() > kMostOwnXTicks) {
        x_ticks_.clear();
        for (double tick = first; tick <= last * 1.001; tick *= 2) x_ticks_.push_back(tick);
      }
    } else {
      x_ticks_ = AxisTicks(last, kNumXTicks);
      if (loads.size() <= kMostOwnXTicks) x_ticks_.assign(loads.begin(), loads.end());
      high_ = std::max(last, x_ticks_.back());
    }
    if (high_ <= low_) high_ = low_ + 1;
  }

  // Some room at both ends keeps markers inside the frame.
  double X(double value) const {
    const double share = ((log_ ? std::log(value) : value) - low_) / (high_ - low_);
    const double pad = log_ ? 14 : 0;
    return left_ + pad + share * (width() - pad - 14);
  }
  double Y(double value) const { return bottom() - value / y_ticks_.back() * height(); }
  double left() const { return left_; }
  double right() const { return left_ + width(); }
  double top() const { return top_; }
  double bottom() const { return top_ + height(); }
  static double width() { return kPanelWidth - kLeft - kRight; }
  static double height() { return kPanelHeight - kTop - kBottom; }
  const std::vector<double>& x_ticks() const { return x_ticks_; }
  const std::vector<double>& y_ticks() const { return y_ticks_; }

 private:
  double left_, top_, low_ = 0, high_ = 1;
  bool log_ = false;
  std::vector<double> x_ticks_, y_ticks_;
};

std::string RenderAxes(const ChartPanel& panel, const Axes& axes) {
  std::string out = Text((axes.left() + axes.right()) / 2, axes.top() - 12, "middle", panel.title,
                         "font-weight=\"bold\"");
  for (const double tick : axes.y_ticks()) {
    out += Line(axes.left(), axes.Y(tick), axes.right(), axes.Y(tick), "#dddddd");
    out += Text(axes.left() - 6, axes.Y(tick) + 4, "end", TickText(tick));
  }
  double free_from = -1e9;  // where the last written tick text ends
  for (const double tick : axes.x_ticks()) {
    const double x = axes.X(tick);
    out += Line(x, axes.bottom(), x, axes.bottom() + 5, "#333333");
    const std::string text = TickText(tick);
    const double half = 3.5 * static_cast<double>(text.size());
    if (x - half < free_from) continue;
    out += Text(x, axes.bottom() + 18, "middle", text);
    free_from = x + half + 4;
  }
  out += Line(axes.left(), axes.bottom(), axes.right(), axes.bottom(), "#333333");
  out += Line(axes.left(), axes.top(), axes.left(), axes.bottom(), "#333333");
  return out + Text((axes.left() + axes.right()) / 2, axes.bottom() + 36, "middle", panel.x_label);
}

std::string RenderLine(const ChartLine& line, const Axes& axes, std::string_view color) {
  std::string path, marks;
  for (const auto& [x, y] : line.points) {
    path += (path.empty() ? "" : " ") + Px(axes.X(x)) + "," + Px(axes.Y(y));
    marks += "<circle cx=\"" + Px(axes.X(x)) + "\" cy=\"" + Px(axes.Y(y)) + "\" r=\"" +
             (line.dashed ? "2" : "3") + "\" fill=\"" + std::string(color) + "\"/>\n";
  }
  return "<polyline points=\"" + path + "\" fill=\"none\" stroke=\"" + std::string(color) +
         "\" stroke-width=\"" + (line.dashed ? "1.2\" stroke-dasharray=\"5,4" : "2") + "\"/>\n" +
         marks;
}

std::string RenderLegend(const std::vector<std::string>& names, double top) {
  std::string out;
  double y = top;
  for (size_t i = 0; i < names.size(); ++i, y += kLegendLine) {
    const std::string_view color = kColors[i % std::size(kColors)];
    out += "<rect x=\"" + Px(kLeft) + "\" y=\"" + Px(y - 9) +
           "\" width=\"18\" height=\"8\" fill=\"" + std::string(color) + "\"/>\n";
    out += Text(kLeft + 26, y, "start", names[i]);
  }
  return out;
}

}  // namespace

std::vector<double> AxisTicks(double max, int count) {
  if (!(max > 0)) max = 1;
  const double rough = max / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * 0.999) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (int i = 0; ticks.empty() || ticks.back() < max * 0.9999; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string RenderSvg(const Chart& chart) {
  const std::vector<std::string> names = LegendNames(chart);
  const double num_panels = static_cast<double>(std::max<size_t>(1, chart.panels.size()));
  const double width = kPanelWidth * num_panels + kMargin;
  const double legend_top = kTitleHeight + kPanelHeight + 16;
  const double note_top = legend_top + kLegendLine * static_cast<double>(names.size());
  const double height = note_top + (chart.footnote.empty() ? 0 : kLegendLine) + kMargin;
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + Px(width) +
                    "\" height=\"" + Px(height) + "\" viewBox=\"0 0 " + Px(width) + " " +
                    Px(height) +
                    "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222222\">\n";
  out += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  out += Text(kLeft, 24, "start", chart.title, "font-size=\"15\" font-weight=\"bold\"");
  double left = kLeft;
  for (const ChartPanel& panel : chart.panels) {
    const Axes axes(panel, left, kTitleHeight + kTop);
    out += RenderAxes(panel, axes);
    for (const ChartLine& line : panel.lines) {
      const auto at = std::find(names.begin(), names.end(), line.name) - names.begin();
      out += RenderLine(line, axes, kColors[static_cast<size_t>(at) % std::size(kColors)]);
    }
    left += kPanelWidth;
  }
  out += RenderLegend(names, legend_top);
  if (!chart.footnote.empty()) out += Text(kLeft, note_top, "start", chart.footnote);
  return out + "</svg>\n";
}

}  // namespace tandem
