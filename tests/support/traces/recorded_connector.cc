#include "tests/support/traces/recorded_connector.h"

#include <string>

#include "proto_msgpack/prefix_cache_stats.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::json;

int IndexOf(const Request& request) { return std::stoi(request.id().substr(1)); }

Json Ids(std::span<const BlockId> table) {
  Json ids = Json::array();
  for (const BlockId block : table) ids.push_back(Index(block));
  return ids;
}

wire::RawValue Packed(const Json& value) {
  const std::vector<uint8_t> bytes = Json::to_msgpack(value);
  return {std::string(bytes.begin(), bytes.end())};
}

std::vector<RequestId> RequestIds(const Json& indices) {
  std::vector<RequestId> ids;
  for (const Json& index : indices) ids.push_back("r" + std::to_string(index.get<int>()));
  return ids;
}

}  // namespace

void RecordedConnector::Expect(const Json& calls) {
  expected_ = calls.is_null() ? Json::array() : calls;
  calls_ = Json::array();
}

Json RecordedConnector::TakeCalls() { return std::exchange(calls_, Json::array()); }

Json RecordedConnector::Next(const char* kind, int request) const {
  if (calls_.size() >= expected_.size()) return nullptr;
  const Json& next = expected_[calls_.size()];
  return next[0] == kind && next[1] == request ? next : Json(nullptr);
}

bool RecordedConnector::OnAdded(const Request& request) {
  const Json extra = Unpacked(request.wire.sampling_params.extra_args);
  return extra.is_object() && extra.contains("kv_transfer_params") &&
         extra["kv_transfer_params"].value("do_remote_prefill", false);
}

std::optional<KvMatch> RecordedConnector::Match(const Request& request, int32_t num_local_tokens) {
  const int i = IndexOf(request);
  const Json call = Next("match", i);
  if (call.is_null()) {
    calls_.push_back({"match", i, num_local_tokens, 0, false});
    return KvMatch{};
  }
  calls_.push_back({"match", i, num_local_tokens, call[3], call[4]});
  if (call[3].is_null()) return std::nullopt;
  return KvMatch{call[3], call[4]};
}

void RecordedConnector::OnAllocated(const Request& request, std::span<const BlockId> table,
                                    int32_t /*num_local_tokens*/, const KvMatch& match) {
  calls_.push_back({"allocated", IndexOf(request), Ids(table), match.num_tokens});
  if (match.num_tokens > 0 && !match.is_async) has_sync_loads = true;
}

KvEnding RecordedConnector::OnFinished(const Request& request, wire::RequestStatus status,
                                       std::span<const BlockId> table) {
  const int i = IndexOf(request);
  const Json call = Next("finished", i);
  KvEnding ending;
  Json params = nullptr;
  if (!call.is_null()) {
    ending.keeps_blocks = call[4];
    params = call[5];
  }
  calls_.push_back(
      {"finished", i, wire::RequestStatusName(status), Ids(table), ending.keeps_blocks, params});
  if (params.is_object() && params.value("do_remote_prefill", false)) {
    params["remote_prefill_cached_tokens"] = request.first_known.total();
  }
  if (!params.is_null()) ending.params = Packed(params);
  return ending;
}

KvTransferReport RecordedConnector::ReportOf(const Json& step) {
  KvTransferReport report;
  if (!step.contains("news")) return report;
  const Json& news = step["news"];
  report.loaded = RequestIds(news["recv"]);
  report.released = RequestIds(news["sent"]);
  report.failed_loads = RequestIds(news["failed_recv"]);
  for (const Json& block : news["bad_blocks"]) report.failed_blocks.push_back(BlockId{block});
  return report;
}

Json RecordedConnector::FetchStages(const wire::SchedulerStats& stats) {
  Json stages = Json::object();
  for (const auto& [stage, count] : stats.num_kv_fetch_reqs_by_stage) stages[stage] = count;
  return stages;
}

Json RecordedConnector::Lookups(const wire::SchedulerStats& stats) {
  const auto unpacked = wire::UnpackPrefixCacheStats(stats.connector_prefix_cache_stats);
  REQUIRE(unpacked.ok());
  return {unpacked->requests,
          unpacked->queries,
          unpacked->hits,
          unpacked->preempted_requests,
          unpacked->preempted_queries,
          unpacked->preempted_hits,
          unpacked->reset};
}

Json RecordedConnector::Unpacked(const wire::RawValue& params) {
  return params.is_nil() ? Json(nullptr) : Json::from_msgpack(params.packed);
}

}  // namespace tandem
