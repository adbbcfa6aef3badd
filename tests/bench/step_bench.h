#pragma once

// A model over random weights and a batch of requests, stepped by hand, for benches of whole steps.
// Thread: the caller's. Owns everything. Failures are CHECKs.

#include <memory>
#include <string>
#include <vector>

#include "engine_core/executor/model_runner.h"
#include "tests/bench/model_shapes.h"
#include "tests/bench/timed_backend.h"

namespace tandem {

double WallSeconds();

struct StepTime {
  double wall = 0;
  double cpu = 0;  // of all threads together, outside of ops
  std::vector<OpTime> ops;
};

class StepBench {
 public:
  // The most tokens of a request.
  static constexpr int32_t kMaxModelLen = 2560;

  StepBench(const ModelShape& shape, int num_threads, WeightFormats formats);

  const Backend& backend() const { return *backend_; }

  // Replaces the batch by requests of `context` tokens, of which all but the last `new_tokens`
  // count as computed.
  StepTime Admit(int32_t num_requests, int32_t context, int32_t new_tokens);
  // Computes one more token of each request.
  StepTime Decode();

  // The bytes that a step must read: weights, lm_head and the keys and values of `context` tokens
  // each.
  double StepBytes(int32_t num_requests, int32_t context) const;
  // Multiplications and additions of a step whose requests run `new_tokens` tokens each.
  double StepFlops(int32_t num_requests, int32_t context, int32_t new_tokens) const;

 private:
  StepTime Run();

  ModelConfig config_;
  TimedBackend* backend_ = nullptr;
  std::unique_ptr<ModelRunner> runner_;
  wire::SamplingParams params_;
  RequestId id_ = "bench";
  std::vector<std::vector<TokenId>> prompts_;
  int32_t num_running_ = 0;
  int32_t context_ = 0;
  SchedulerOutput step_;
  ModelOutput output_;
};

}  // namespace tandem
