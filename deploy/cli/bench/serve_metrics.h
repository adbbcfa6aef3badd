#pragma once

// The figures of a run from the outcome of each request; vLLM's definitions. Pure.
// Times are seconds, from a monotonic clock. Only requests that succeeded enter a distribution.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// One request as the client saw it.
struct RequestOutcome {
  bool success = false;       // at least one chunk with choices, and a clean end
  std::string error;          // why not; empty on success
  int64_t prompt_tokens = 0;  // the server's count, else ours
  int64_t output_tokens = 0;  // the server's count, else the text tokenized again; 0 on failure
  int64_t num_results = 0;    // choices of a whole response, or vectors or scores
  double start = 0;           // when it was sent
  double queue_time = 0;      // from when it was due to when it was sent
  double ttft = 0;            // to the first chunk with choices, even one without text
  double latency = 0;         // to the last such chunk
  std::vector<double> itl;    // gaps between such chunks
  std::string text;
};

// Mean, deviation and percentiles of one metric, in milliseconds; zeros when there is no sample.
struct Distribution {
  double mean_ms = 0;
  double median_ms = 0;
  double std_ms = 0;                                   // of the population
  std::vector<std::pair<double, double>> percentiles;  // (99, ms), as requested
};

// Limits of a good request, in ms; a request without a second token has a TPOT of 0.
struct Goodput {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;
  bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
};

struct ServeMetrics {
  int64_t completed = 0;
  int64_t failed = 0;
  int64_t total_input_tokens = 0;
  int64_t total_output_tokens = 0;
  int64_t total_inputs = 0;  // that vectors or scores were made of
  double duration = 0;       // from the first request's turn to the last one's end
  double request_throughput = 0;
  double input_throughput = 0;
  std::optional<double> request_goodput;  // good requests per second, when limits were given
  double output_throughput = 0;
  double total_token_throughput = 0;
  double max_output_tokens_per_s = 0;   // chunks of the busiest second
  int64_t max_concurrent_requests = 0;  // requests that were alive in the busiest second
  Distribution ttft, tpot, itl, e2el;
  Distribution client_queue_time, e2el_including_client_queue;
};

ServeMetrics CalculateMetrics(std::span<const RequestOutcome> outcomes, double duration,
                              const Goodput& goodput, std::span<const double> percentiles);

// numpy.percentile with its default, linear interpolation. `sorted` ascending; 0 when empty.
double Percentile(std::span<const double> sorted, double percent);

}  // namespace tandem
