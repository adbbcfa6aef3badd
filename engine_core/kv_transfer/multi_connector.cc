#include "engine_core/kv_transfer/multi_connector.h"

#include <algorithm>

#include "engine_core/scheduler/request.h"
#include "proto_msgpack/kv_connector_stats.h"

namespace tandem {

bool MultiConnector::OnAdded(const Request& request) {
  bool fetches = false;
  for (const auto& connector : connectors_) fetches = connector->OnAdded(request) || fetches;
  return fetches;
}

void MultiConnector::OnRefused(const RequestId& id, const wire::RawValue& extra_args) {
  for (const auto& connector : connectors_) connector->OnRefused(id, extra_args);
}

std::optional<KvMatch> MultiConnector::Match(const Request& request, int32_t num_local_tokens) {
  for (size_t i = 0; i < connectors_.size(); ++i) {
    const std::optional<KvMatch> match = connectors_[i]->Match(request, num_local_tokens);
    if (!match) return std::nullopt;
    if (match->num_tokens == 0) continue;
    chosen_[request.id()] = i;
    return match;
  }
  chosen_.erase(request.id());
  return KvMatch{};
}

wire::CountsByName MultiConnector::Sources(const Request& request, int32_t num_local_tokens,
                                           const KvMatch& match) const {
  const auto found = chosen_.find(request.id());
  if (found == chosen_.end()) return KvConnector::Sources(request, num_local_tokens, match);
  return connectors_[found->second]->Sources(request, num_local_tokens, match);
}

void MultiConnector::OnAllocated(const Request& request, std::span<const BlockId> table,
                                 int32_t num_local_tokens, const KvMatch& match) {
  const auto found = chosen_.find(request.id());
  const size_t chosen = found == chosen_.end() ? connectors_.size() : found->second;
  for (size_t i = 0; i < connectors_.size(); ++i) {
    connectors_[i]->OnAllocated(request, table, num_local_tokens, i == chosen ? match : KvMatch{});
  }
  chosen_.erase(request.id());
}

bool MultiConnector::WillFreeBlocks() const {
  return std::ranges::any_of(connectors_, [](const auto& one) { return one->WillFreeBlocks(); });
}

KvEnding MultiConnector::OnFinished(const Request& request, wire::RequestStatus status,
                                    std::span<const BlockId> table) {
  chosen_.erase(request.id());
  KvEnding whole;
  int num_keepers = 0;
  for (const auto& connector : connectors_) {
    KvEnding ending = connector->OnFinished(request, status, table);
    if (ending.keeps_blocks) ++num_keepers;
    whole.holds_output = whole.holds_output || ending.holds_output;
    whole.is_promised = whole.is_promised || ending.is_promised;
    if (whole.params.is_nil()) whole.params = std::move(ending.params);
  }
  whole.keeps_blocks = num_keepers > 0;
  if (num_keepers > 1) keepers_[request.id()] = num_keepers;
  return whole;
}

void MultiConnector::OnGivenUp(const RequestId& id) {
  for (const auto& connector : connectors_) connector->OnGivenUp(id);
}

void MultiConnector::TakeEvents(std::vector<KvCacheEvent>* events) {
  for (const auto& connector : connectors_) connector->TakeEvents(events);
}

bool MultiConnector::Reset() {
  bool done = true;
  for (const auto& connector : connectors_) done = connector->Reset() && done;
  return done;
}

// Those of two connectors of one class are for vLLM's frontend those of the later one.
wire::RawValue MultiConnector::TakeStats() {
  std::vector<std::pair<std::string_view, wire::RawValue>> stats;
  for (const auto& connector : connectors_) {
    stats.emplace_back(connector->name(), connector->TakeStats());
  }
  return wire::PackedByConnector(stats);
}

void MultiConnector::OnSubmit() {
  for (const auto& connector : connectors_) connector->OnSubmit();
}

void MultiConnector::OnCollect() {
  for (const auto& connector : connectors_) connector->OnCollect();
}

void MultiConnector::Report(KvTransferReport* report) {
  const auto append = [](auto& from, auto* to) { to->insert(to->end(), from.begin(), from.end()); };
  for (size_t i = 0; i < connectors_.size(); ++i) {
    KvTransferReport& one = reports_[i];
    one.Clear();
    connectors_[i]->Report(&one);
    append(one.loaded, &report->loaded);
    append(one.failed_blocks, &report->failed_blocks);
    append(one.failed_loads, &report->failed_loads);
    append(one.not_stored, &report->not_stored);
    for (const RequestId& id : one.released) {
      const auto keepers = keepers_.find(id);
      if (keepers != keepers_.end() && --keepers->second > 0) continue;
      if (keepers != keepers_.end()) keepers_.erase(keepers);
      report->released.push_back(id);
    }
  }
}

bool MultiConnector::is_busy() const {
  return std::ranges::any_of(connectors_, [](const auto& one) { return one->is_busy(); });
}

// One wait is enough: the engine asks all of them after it.
void MultiConnector::WaitBriefly() {
  const auto busy =
      std::ranges::find_if(connectors_, [](const auto& one) { return one->is_busy(); });
  if (busy != connectors_.end()) (*busy)->WaitBriefly();
}

}  // namespace tandem
