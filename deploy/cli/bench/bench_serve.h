#pragma once

// `tandem bench serve`: sends requests to any OpenAI-compatible server and measures the
// responses. BenchServe is the same without command line and printing, for callers with many loads.
// Thread: any one thread, which it blocks; starts a network thread of its own and has joined it
// when it returns, so calls may follow one another (not run at once). Prompts are built and
// tokenized before the clock starts.
// Failure: a Status when there is nothing to measure: impossible options (INVALID_ARGUMENT), a
// dataset or tokenizer that cannot be read, a server that never becomes ready (UNAVAILABLE). A
// request that fails is an outcome, not a Status; all of them may fail.

#include <string>
#include <vector>

#include "common/status.h"
#include "deploy/cli/bench/serve_metrics.h"
#include "deploy/cli/bench/serve_options.h"

namespace tandem {

struct BenchServeResult {
  struct RateChange {
    int64_t rps = 0;
    double unix_time = 0;
  };

  std::string model_id;      // as asked for, or the server's first model
  std::string tokenizer_id;  // folder; empty without a tokenizer
  double started_at = 0;     // Unix time
  ServeMetrics metrics;
  std::vector<RequestOutcome> outcomes;  // in the order they were due
  std::vector<RateChange> rate_changes;  // with a ramp: when the rate reached a whole number
  double client_cpu_s = 0;               // CPU time of the network thread during the run
};

StatusOr<BenchServeResult> BenchServe(const BenchServeOptions& options);

// The text that `tandem bench serve` prints, and its JSON object (one line; arrays of single
// requests only with options.save_detailed).
std::string BenchServeReport(const BenchServeOptions& options, const BenchServeResult& result);
std::string BenchServeJson(const BenchServeOptions& options, const BenchServeResult& result);
// --result-filename, or a name made of label, rate, concurrency, model and date.
std::string BenchServeFileName(const BenchServeOptions& options, const BenchServeResult& result);

// Returns the exit status: 0; 1 when the server never became ready or every request failed; 2 for a
// bad command line.
int RunBenchServe(const std::vector<std::string>& args);

}  // namespace tandem
