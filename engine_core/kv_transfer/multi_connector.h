#pragma once

// Several KV connectors as one, as vLLM's MultiConnector: a request's KV is loaded from the first
// one that has any of it, and stored to all. Blocks of a request that ends stay until the last one
// needs them no longer. Thread: engine loop, as those of the connectors, which it owns.

#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine_core/kv_transfer/in_process_connector.h"

namespace tandem {

class MultiConnector final : public InProcessConnector {
 public:
  // In the order in which they are asked.
  explicit MultiConnector(std::vector<std::unique_ptr<InProcessConnector>> connectors)
      : connectors_(std::move(connectors)), reports_(connectors_.size()) {}

  bool OnAdded(const Request& request) override;
  void OnRefused(const RequestId& id, const wire::RawValue& extra_args) override;
  std::optional<KvMatch> Match(const Request& request, int32_t num_local_tokens) override;
  wire::CountsByName Sources(const Request& request, int32_t num_local_tokens,
                             const KvMatch& match) const override;
  void OnAllocated(const Request& request, std::span<const BlockId> table, int32_t num_local_tokens,
                   const KvMatch& match) override;
  bool WillFreeBlocks() const override;
  // The params of the first one that has any: no two of ours do.
  KvEnding OnFinished(const Request& request, wire::RequestStatus status,
                      std::span<const BlockId> table) override;
  void OnGivenUp(const RequestId& id) override;
  void TakeEvents(std::vector<KvCacheEvent>* events) override;
  bool Reset() override;
  wire::RawValue TakeStats() override;

  void OnSubmit() override;
  void OnCollect() override;
  void Report(KvTransferReport* report) override;
  bool is_busy() const override;
  void WaitBriefly() override;

 private:
  std::vector<std::unique_ptr<InProcessConnector>> connectors_;
  std::unordered_map<RequestId, size_t> chosen_;  // of requests with a match: which one loads
  std::unordered_map<RequestId, int> keepers_;    // how many still keep a request's blocks
  std::vector<KvTransferReport> reports_;         // parallel to connectors_; reused
};

}  // namespace tandem
