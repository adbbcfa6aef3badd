#pragma once

// An Executor whose results have the reports of a KV connector as well. A step in which nothing
// runs waits for the next report, so that the engine does not spin.
// Thread: engine loop. Owns neither. Failure: the executor's own.

#include <deque>

#include "engine_core/executor/executor.h"
#include "engine_core/kv_transfer/in_process_connector.h"

namespace tandem {

class TransferringExecutor final : public Executor {
 public:
  TransferringExecutor(Executor* executor, InProcessConnector* connector)
      : executor_(executor), connector_(connector) {}

  const ExecutorLimits& limits() const override { return executor_->limits(); }
  Status Submit(const SchedulerOutput& step) override {
    runs_.push_back(!step.empty());
    connector_->OnSubmit();
    return executor_->Submit(step);
  }
  Status Collect(ModelOutput* result) override {
    RETURN_IF_ERROR(executor_->Collect(result));
    const bool runs = runs_.front();
    runs_.pop_front();
    connector_->OnCollect();
    if (!runs) connector_->WaitBriefly();
    connector_->Report(&result->kv_transfers);
    return OkStatus();
  }

 private:
  Executor* executor_;
  InProcessConnector* connector_;
  std::deque<bool> runs_;  // of the steps in flight
};

}  // namespace tandem
