#pragma once

// The results of a sweep: one row per run as JSON and CSV for programs, and a table of medians for
// people. Pure; the sets that rows point to must outlive it.

#include <string>
#include <vector>

#include "deploy/cli/bench/bench_figures.h"
#include "deploy/cli/bench/load_plot.h"
#include "deploy/cli/bench/sweep_params.h"

namespace tandem {

struct SweepRun {
  const ParameterSet* serve = nullptr;
  const ParameterSet* bench = nullptr;
  int run = 0;        // counts the runs of this pair from 1
  std::string file;   // of the result
  std::string error;  // why there are no figures; empty when there are
  BenchFigures figures;
};

// A list of objects: the bench's numbers, "serve" and "bench" with the settings, "run", "file",
// "label", and "error" for a run that failed.
std::string SweepJson(const std::vector<SweepRun>& runs);
std::string SweepCsv(const std::vector<SweepRun>& runs);
// One row per pair of sets: medians over its runs that succeeded.
std::string SweepTable(const std::vector<SweepRun>& runs);
// One line per serve set and per bench set, apart from the load.
std::vector<LoadRunFigures> SweepPlotRuns(const std::vector<SweepRun>& runs);

}  // namespace tandem
