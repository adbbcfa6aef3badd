#pragma once

// A steady decode load on the real engine core: all requests run, none ends. Its executor does no
// work, so a step measures the engine's own share. Used by the allocation test and the benchmark.
// Thread: any one.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "engine_core/engine_core.h"
#include "engine_core/executor/result_queue.h"
#include "engine_core/flight_recorder.h"
#include "engine_core/recorder/flight_ring.h"

namespace tandem {

struct DecodeLoadOptions {
  int32_t num_requests = 256;
  int32_t prompt_tokens = 100;
  int32_t block_size = 32;
  bool enable_prefix_caching = true;
  bool async_scheduling = false;
  size_t flight_recorder_bytes = 0;  // 0: nothing is recorded
};

class DecodeLoad {
 public:
  explicit DecodeLoad(const DecodeLoadOptions& options);

  // Steps until every request decodes.
  void Prefill();
  // One step of the engine; its messages are taken and recycled as by the wire thread.
  void Step();

  size_t num_running() const { return engine_->scheduler().num_running(); }
  int64_t num_output_tokens() const { return num_output_tokens_; }
  uint64_t num_recorded_bytes() const { return ring_ ? ring_->num_bytes() : 0; }

 private:
  // Samples the same token every time.
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
  std::optional<FlightRing> ring_;
  std::unique_ptr<FlightRecorder> recorder_;
  std::unique_ptr<RecordedClock> recorded_clock_;
  std::unique_ptr<RecordedExecutor> recorded_executor_;
  std::unique_ptr<EngineCore> engine_;
  std::vector<ClientMessage> messages_;
  int64_t num_output_tokens_ = 0;
};

}  // namespace tandem
