#pragma once

// TTFT, ITL and throughput against load, from the results of several load runs. Pure, apart from
// WriteLoadPlot's file. The load is the request rate where runs have one, else the concurrency.

#include <string>
#include <vector>

#include "common/status.h"
#include "deploy/cli/bench/bench_figures.h"
#include "deploy/cli/bench/svg_chart.h"

namespace tandem {

struct LoadRunFigures {
  std::string series;  // runs of one series make one line; of equal loads the median is drawn
  BenchFigures figures;
};

// Runs with the same label are one series; those without a label are called `otherwise`.
std::vector<LoadRunFigures> ByLabel(std::vector<BenchFigures> runs, const std::string& otherwise);

// INVALID_ARGUMENT when a run has no load: neither a finite request rate nor a concurrency.
StatusOr<Chart> LoadChart(const std::string& title, const std::vector<LoadRunFigures>& runs);

// Draws them into an SVG file.
Status WriteLoadPlot(const std::string& path, const std::string& title,
                     const std::vector<LoadRunFigures>& runs);

// `tandem bench plot --results RESULT.json … --output FILE.svg`. Returns the exit status.
int RunBenchPlot(const std::vector<std::string>& args);

}  // namespace tandem
