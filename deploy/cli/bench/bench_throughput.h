#pragma once

// `tandem bench throughput`: how long all requests of a dataset take when all are sent at once.
// Thread: main.

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

struct ThroughputResult {
  std::string model_id;
  double elapsed_s = 0;
  int64_t num_requests = 0;
  int64_t num_prompt_tokens = 0;
  int64_t num_output_tokens = 0;
};

// The lines that are printed, and the JSON object of --output-json. REQUIRES: elapsed_s > 0.
std::string ThroughputReport(const ThroughputResult& result);
std::string ThroughputJson(const ThroughputResult& result);

// Returns the exit status: 0; 1 when the server or a request failed; 2 for a bad command line.
int RunBenchThroughput(const std::vector<std::string>& args);

}  // namespace tandem
