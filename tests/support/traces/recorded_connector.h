#pragma once

// A KvConnector whose answers are those of a recording: each call is compared with the recorded one
// in its place when the step is, and is answered as that was. Thread: the test's.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "engine_core/scheduler/kv_connector.h"
#include "engine_core/scheduler/request.h"

namespace tandem {

class RecordedConnector final : public KvConnector {
 public:
  // The calls that come next, as recorded; null: none.
  void Expect(const nlohmann::json& calls);
  // Those that have come since, in the form of the recording.
  nlohmann::json TakeCalls();
  bool has_sync_loads = false;  // since the caller has reset it
  bool frees_soon = false;      // set by the caller

  bool OnAdded(const Request& request) override;
  std::optional<KvMatch> Match(const Request& request, int32_t num_local_tokens) override;
  void OnAllocated(const Request& request, std::span<const BlockId> table, int32_t num_local_tokens,
                   const KvMatch& match) override;
  bool WillFreeBlocks() const override { return frees_soon; }
  KvEnding OnFinished(const Request& request, wire::RequestStatus status,
                      std::span<const BlockId> table) override;

  // The report that a recorded step comes with.
  static KvTransferReport ReportOf(const nlohmann::json& step);
  // Of SchedulerStats, as recorded.
  static nlohmann::json FetchStages(const wire::SchedulerStats& stats);
  static nlohmann::json Lookups(const wire::SchedulerStats& stats);
  static nlohmann::json Unpacked(const wire::RawValue& params);

 private:
  // The recorded call in this place, if it is of this kind; null: none.
  nlohmann::json Next(const char* kind, int request) const;

  nlohmann::json expected_ = nlohmann::json::array();
  nlohmann::json calls_ = nlohmann::json::array();
};

}  // namespace tandem
