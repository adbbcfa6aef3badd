#pragma once

// A steady decode load on the real engine core: all requests running, none ending. Its executor
// does no work, so what is measured around a step is the engine's own. Used by the allocation test
// and the benchmark. Thread: any one.

#include <cstdint>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "engine_core/engine_core.h"
#include "engine_core/executor/result_queue.h"

namespace tandem {

struct DecodeLoadOptions {
  int32_t num_requests = 256;
  int32_t prompt_tokens = 100;
  int32_t block_size = 32;
  bool enable_prefix_caching = true;
  bool async_scheduling = false;
};

class DecodeLoad {
 public:
  explicit DecodeLoad(const DecodeLoadOptions& options);

  // Steps until every request decodes.
  void Prefill();
  // One step of the engine, with its messages taken and given back as the wire thread would.
  void Step();

  size_t num_running() const { return engine_->scheduler().num_running(); }
  int64_t num_output_tokens() const { return num_output_tokens_; }

 private:
  // Answers every sample with the same token at once.
  class NullExecutor final : public Executor {
   public:
    explicit NullExecutor(const DecodeLoadOptions& options);
    const ExecutorLimits& limits() const override { return limits_; }
    Status Submit(const SchedulerOutput& step) override;
    Status Collect(ModelOutput* result) override;

   private:
    ExecutorLimits limits_;
    ResultQueue results_;
  };

  ManualClock clock_;
  NullExecutor executor_;
  std::unique_ptr<EngineCore> engine_;
  std::vector<ClientMessage> messages_;
  int64_t num_output_tokens_ = 0;
};

}  // namespace tandem
