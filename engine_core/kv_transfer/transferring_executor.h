#pragma once

// An Executor whose results have the reports of a KV connector as well. A step in which nothing
// runs waits for the next report, so that the engine does not spin.
// In a sleep the caches stay where they are, since the connector and other ranks have views of
// them, and their pages go. What the connector has elsewhere is of the weights that it was made
// for: other ones are refused.
// Thread: engine loop. Owns neither. Failure: the executor's own; FAILED_PRECONDITION for other
// weights.

#include <deque>
#include <functional>
#include <string>

#include "common/status.h"
#include "engine_core/executor/executor.h"
#include "engine_core/kv_transfer/in_process_connector.h"
#include "kernels/kv_caches.h"

namespace tandem {

// For an executor that can release its memory.
struct TransferSleep {
  KvCaches caches = {};          // of all ranks; they outlive the executor
  std::string fingerprint = {};  // ModelFingerprint of the weights that the connector was made for
  // Of those that the model's folder has now.
  std::function<StatusOr<std::string>()> current_fingerprint = {};
};

class TransferringExecutor final : public Executor {
 public:
  TransferringExecutor(Executor* executor, InProcessConnector* connector, TransferSleep sleep = {})
      : executor_(executor), connector_(connector), sleep_(std::move(sleep)) {}

  const ExecutorLimits& limits() const override { return executor_->limits(); }
  Status Submit(const SchedulerOutput& step) override;
  Status Collect(ModelOutput* result) override;
  // REQUIRES: the connector is at rest.
  Status Release(const MemoryParts& parts, bool rereads) override;
  Status Restore(const MemoryParts& parts) override;

 private:
  Status CheckWeights() const;

  Executor* executor_;
  InProcessConnector* connector_;
  const TransferSleep sleep_;
  std::deque<bool> runs_;  // of the steps in flight
  bool rereads_ = false;   // the weights that come next are the folder's
};

}  // namespace tandem
