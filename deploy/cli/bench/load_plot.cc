#include "deploy/cli/bench/load_plot.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "common/exit_status.h"
#include "common/flags.h"
#include "deploy/cli/bench/write_file.h"
#include "deploy/cli/report_failure.h"

namespace tandem {
namespace {

constexpr std::string_view kCommand = "bench plot";

// Loads of one line, each with the values of all runs at that load.
using Samples = std::map<double, std::vector<double>>;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

ChartLine MakeLine(const std::string& name, const Samples& samples, bool dashed) {
  ChartLine line{.name = name, .points = {}, .dashed = dashed};
  for (const auto& [load, values] : samples) line.points.emplace_back(load, Median(values));
  return line;
}

std::vector<std::string> SeriesNames(const std::vector<LoadRunFigures>& runs) {
  std::vector<std::string> names;
  for (const LoadRunFigures& run : runs) {
    if (std::find(names.begin(), names.end(), run.series) == names.end()) {
      names.push_back(run.series);
    }
  }
  return names;
}

void AddLines(const std::vector<LoadRunFigures>& runs, std::string_view load_field,
              std::string_view field, bool dashed, ChartPanel* panel) {
  for (const std::string& name : SeriesNames(runs)) {
    Samples samples;
    for (const LoadRunFigures& run : runs) {
      const auto load = run.figures.Find(load_field), value = run.figures.Find(field);
      if (run.series == name && load && value) samples[*load].push_back(*value);
    }
    if (!samples.empty()) panel->lines.push_back(MakeLine(name, samples, dashed));
  }
}

bool AllHave(const std::vector<LoadRunFigures>& runs, std::string_view field) {
  return std::all_of(runs.begin(), runs.end(), [&](const LoadRunFigures& run) {
    return run.figures.Find(field).has_value();
  });
}

}  // namespace

std::vector<LoadRunFigures> ByLabel(std::vector<BenchFigures> runs, const std::string& otherwise) {
  std::vector<LoadRunFigures> named;
  for (BenchFigures& figures : runs) {
    std::string series = figures.label.empty() ? otherwise : figures.label;
    named.push_back({std::move(series), std::move(figures)});
  }
  return named;
}

StatusOr<Chart> LoadChart(const std::string& title, const std::vector<LoadRunFigures>& runs) {
  // JSON has a rate of infinity as text, so it is not among the numbers.
  std::string_view load = "request_rate", x_label = "request rate (1/s)";
  if (!AllHave(runs, load)) {
    load = "max_concurrency";
    x_label = "requests at once";
  }
  if (runs.empty() || !AllHave(runs, load)) {
    return InvalidArgumentError(
        "nothing to plot against: each run needs a finite request rate or a concurrency");
  }
  Chart chart{.title = title, .footnote = "", .panels = {}};
  const std::pair<std::string_view, std::string_view> latencies[] = {
      {"ttft", "Time to first token (ms)"}, {"itl", "Inter-token latency (ms)"}};
  for (const auto& [metric, heading] : latencies) {
    ChartPanel panel{std::string(heading), std::string(x_label), {}};
    AddLines(runs, load, "median_" + std::string(metric) + "_ms", false, &panel);
    AddLines(runs, load, "p99_" + std::string(metric) + "_ms", true, &panel);
    const auto is_dashed = [](const ChartLine& line) { return line.dashed; };
    if (std::any_of(panel.lines.begin(), panel.lines.end(), is_dashed)) {
      chart.footnote = "Latencies: median, dashed 99th percentile.";
    }
    chart.panels.push_back(std::move(panel));
  }
  ChartPanel panel{"Output throughput (tokens/s)", std::string(x_label), {}};
  AddLines(runs, load, "output_throughput", false, &panel);
  chart.panels.push_back(std::move(panel));
  return chart;
}

Status WriteLoadPlot(const std::string& path, const std::string& title,
                     const std::vector<LoadRunFigures>& runs) {
  ASSIGN_OR_RETURN(const Chart chart, LoadChart(title, runs));
  return WriteFile(path, RenderSvg(chart));
}

int RunBenchPlot(const std::vector<std::string>& args) {
  constexpr std::string_view kAbout =
      "tandem bench plot --results RESULT.json [RESULT.json ...] --output FILE.svg: draw TTFT, ITL "
      "and throughput against load, one line per file, or per label within a file.";
  std::vector<std::string> results;
  std::string output, title = "Latency and throughput against load";
  const std::vector<Flag> flags = {
      {"results", &results,
       "Result files of bench serve (also with --append-result) or of a sweep"},
      {"output", &output, "SVG file to write"},
      {"title", &title, "Heading of the drawing"}};
  const StatusOr<FlagOutcome> parsed = ParseFlags(flags, args, kAbout);
  if (!parsed.ok()) return ReportFailure(kCommand, parsed.status(), kExitBadFlags);
  if (*parsed == FlagOutcome::kHelpShown) return kExitOk;
  if (results.empty() || output.empty()) {
    return ReportFailure(kCommand, InvalidArgumentError("give --results and --output"),
                         kExitBadFlags);
  }
  std::vector<LoadRunFigures> runs;
  for (const std::string& path : results) {
    StatusOr<std::vector<BenchFigures>> all = ReadAllBenchFigures(path);
    if (!all.ok()) return ReportFailure(kCommand, all.status(), kExitFailed);
    for (LoadRunFigures& run : ByLabel(std::move(*all), std::filesystem::path(path).stem())) {
      runs.push_back(std::move(run));
    }
  }
  const Status status = WriteLoadPlot(output, title, runs);
  return status.ok() ? kExitOk : ReportFailure(kCommand, status, kExitFailed);
}

}  // namespace tandem
