#include "engine_core/kv_transfer/transferring_executor.h"

#include "kernels/host_pages.h"

namespace tandem {

Status TransferringExecutor::Submit(const SchedulerOutput& step) {
  runs_.push_back(!step.empty());
  connector_->OnSubmit();
  return executor_->Submit(step);
}

Status TransferringExecutor::Collect(ModelOutput* result) {
  RETURN_IF_ERROR(executor_->Collect(result));
  const bool runs = runs_.front();
  runs_.pop_front();
  connector_->OnCollect();
  if (!runs) connector_->WaitBriefly();
  connector_->Report(&result->kv_transfers);
  return OkStatus();
}

Status TransferringExecutor::Release(const MemoryParts& parts, bool rereads) {
  RETURN_IF_ERROR(executor_->Release({.weights = parts.weights}, rereads));
  rereads_ |= parts.weights && rereads;
  if (!parts.kv_cache) return OkStatus();
  for (const KvCachePart& part : sleep_.caches) {
    GiveBackPages({MemoryOf(*part.cache), static_cast<size_t>(part.cache->num_bytes())});
  }
  return OkStatus();
}

Status TransferringExecutor::Restore(const MemoryParts& parts) {
  if (parts.weights && rereads_) RETURN_IF_ERROR(CheckWeights());
  RETURN_IF_ERROR(executor_->Restore(parts));
  if (parts.weights) rereads_ = false;
  return OkStatus();
}

Status TransferringExecutor::CheckWeights() const {
  ASSIGN_OR_RETURN(const std::string current, sleep_.current_fingerprint());
  if (current == sleep_.fingerprint) return OkStatus();
  return FailedPreconditionError(
      "the model's folder has other weights than those whose KV the connector "
      "(--kv-transfer-config) has: bring the former ones back, or restart the engine");
}

}  // namespace tandem
