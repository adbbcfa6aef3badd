#pragma once

// `tandem bench latency`: how long a batch of equal requests, sent at once, takes to the last
// token. Prompts are random token ids; every output has its full length. Thread: main.

#include <span>
#include <string>
#include <vector>

namespace tandem {

// Seconds per iteration as the lines that are printed, and as the JSON object of --output-json.
// REQUIRES: at least one latency.
std::string LatencyReport(std::span<const double> latencies);
std::string LatencyJson(const std::string& model_id, std::span<const double> latencies);

// Returns the exit status: 0; 1 when the server or a request failed; 2 for a bad command line.
int RunBenchLatency(const std::vector<std::string>& args);

}  // namespace tandem
