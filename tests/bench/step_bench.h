#pragma once

// One model over made-up weights and a batch of requests, stepped by hand: what a bench of whole
// steps runs. Thread: the caller's. Owns everything; what must not happen dies (CHECK).

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
  // Room for requests of up to so many tokens.
  static constexpr int32_t kMaxModelLen = 2560;

  StepBench(const ModelShape& shape, int num_threads, WeightFormats formats);

  const Backend& backend() const { return *backend_; }

  // Requests of `context` tokens in place of those that were there; all but the last `new_tokens`
  // count as computed.
  StepTime Admit(int32_t num_requests, int32_t context, int32_t new_tokens);
  // One more token of each.
  StepTime Decode();

  // What a step must read: weights, lm_head and the keys and values of `context` tokens each.
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
