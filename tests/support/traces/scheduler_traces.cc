#include "tests/support/traces/scheduler_traces.h"

#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/client_outputs.h"
#include "engine_core/scheduler/scheduler.h"
#include "tests/support/gzip/gzip_lines.h"
#include "tests/support/traces/recorded_connector.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::json;

int32_t OrZero(const Json& value) { return value.is_null() ? 0 : value.get<int32_t>(); }

DraftConfig DraftConfigOf(const Json& spec) {
  DraftConfig drafts;
  drafts.num_speculative_tokens = spec["num_speculative_tokens"];
  drafts.num_lookahead_tokens = spec["lookahead"];
  drafts.num_input_slots = spec["draft_slots"];
  drafts.pads_new_requests = true;
  if (!spec.contains("schedule")) return drafts;
  for (const Json& range : spec["schedule"]) drafts.by_batch.push_back({range[0], range[2]});
  return drafts;
}

SchedulerConfig SchedulerConfigOf(const Json& c) {
  SchedulerConfig config;
  config.max_num_batched_tokens = c["max_num_batched_tokens"];
  config.max_num_scheduled_tokens = OrZero(c["max_num_scheduled_tokens"]);
  config.max_num_seqs = c["max_num_seqs"];
  config.max_num_active_seqs = OrZero(c["max_num_active_seqs"]);
  config.max_model_len = c["max_model_len"];
  config.policy = c["policy"] == "priority" ? SchedulingPolicy::kPriority : SchedulingPolicy::kFcfs;
  config.enable_chunked_prefill = c["enable_chunked_prefill"];
  config.long_prefill_token_threshold = c["long_prefill_token_threshold"];
  config.long_prefill_token_threshold_adaptive = c["long_prefill_token_threshold_adaptive"];
  config.reserve_full_isl = c["scheduler_reserve_full_isl"];
  config.prefill_schedule_interval = c["prefill_schedule_interval"];
  if (c.contains("lora") && !c["lora"].is_null()) config.max_loras = c["lora"]["max_loras"];
  if (c.contains("spec") && !c["spec"].is_null()) config.drafts = DraftConfigOf(c["spec"]);
  if (!c.contains("connector")) return config;
  if (c["connector"]["failure_policy"] == "recompute") {
    config.kv_load_failure_policy = KvLoadFailurePolicy::kRecompute;
  }
  config.max_failed_kv_loads = INT32_MAX;  // vLLM asks without end
  return config;
}

KvCacheConfig KvCacheConfigOf(const Json& c) {
  KvCacheConfig config;
  config.num_blocks = c["num_gpu_blocks"];
  config.block_size = c["block_size"];
  config.max_num_seqs = c["max_num_seqs"];
  config.max_model_len = c["max_model_len"];
  config.enable_prefix_caching = c["enable_prefix_caching"];
  config.watermark = c["watermark"];
  config.enable_events = c["kv_events"];
  if (c.contains("spec") && !c["spec"].is_null()) {
    config.hashes_next_token = c["spec"]["hash_lookahead"] == 1;
    config.drops_last_found_block = c["spec"]["drop_last_matched_block"];
  }
  return config;
}

wire::EngineCoreRequest RequestOf(const Json& r, TokenId eos) {
  wire::EngineCoreRequest request;
  request.request_id = r["id"];
  request.prompt_token_ids = r["prompt"].get<std::vector<TokenId>>();
  request.priority = r["priority"];
  request.arrival_time = r["arrival_time"];
  if (!r["cache_salt"].is_null()) request.cache_salt = r["cache_salt"];
  wire::SamplingParams& params = request.sampling_params;
  params.max_tokens = r["max_tokens"];
  params.min_tokens = r["min_tokens"];
  params.stop_token_ids = r["stop_token_ids"].get<std::vector<TokenId>>();
  params.ignore_eos = r["ignore_eos"];
  if (!params.ignore_eos) params.eos_token_id = eos;
  params.skip_reading_prefix_cache = r["skip_reading_prefix_cache"].get<bool>();
  if (!r["repetition"].is_null()) {
    params.repetition_detection = {r["repetition"][0], r["repetition"][1], r["repetition"][2]};
  }
  if (r.contains("kv_transfer_params") && !r["kv_transfer_params"].is_null()) {
    const auto packed = Json::to_msgpack({{"kv_transfer_params", r["kv_transfer_params"]}});
    params.extra_args.packed.assign(packed.begin(), packed.end());
  }
  return request;
}

Adapter AdapterOf(const Json& r) {
  if (!r.contains("lora") || r["lora"] == 0) return {};
  const std::string id = r["lora"].dump();
  return {.id = r["lora"], .name = "lora" + id, .path = "/lora/" + id};
}

class Replay {
 public:
  explicit Replay(const Json& trace)
      : trace_(trace),
        kv_cache_(KvCacheConfigOf(trace["config"])),
        has_connector_(trace["config"].contains("connector")),
        scheduler_(SchedulerConfigOf(trace["config"]), &kv_cache_,
                   has_connector_ ? &connector_ : nullptr) {}

  void Run() {
    for (size_t i = 0; i < trace_["steps"].size(); ++i) {
      INFO(trace_["name"].get<std::string>() << ", step " << i);
      if (!Step(trace_["steps"][i])) return;
    }
    INFO(trace_["name"].get<std::string>() << ", end");
    CompareEnd();
  }

 private:
  // False: a step differs, and nothing after it can be equal.
  bool Step(const Json& expected) {
    Json ours = expected;  // keys that are not overwritten are inputs
    ++now_;
    Expect("op_calls", expected);
    ours["ops"] = Apply(expected["ops"]);
    TakeCalls("op_calls", &ours);
    Expect("calls", expected);
    connector_.has_sync_loads = false;
    const SchedulerOutput& step = scheduler_.Schedule(now_);
    TakeCalls("calls", &ours);
    Expect("update_calls", expected);
    CompareFreed(step, expected);
    ours["sched"] = Scheduled(step);
    ours["free_sched"] = kv_cache_.pool().num_free();
    ModelOutput result = expected.contains("sampled") ? Recorded(step, expected) : Sample(step);
    if (expected.contains("num_spec_tokens_to_schedule")) {
      ours["num_spec_tokens_to_schedule"] = step.num_drafts_wanted;
    }
    result.kv_transfers = RecordedConnector::ReportOf(expected);
    if (expected.contains("mid")) ours["mid"] = Apply(expected["mid"]);

    ClientOutputs outputs;
    scheduler_.Update(step, &result, &outputs);
    const wire::SchedulerStats stats = scheduler_.TakeStats();
    const auto& prefix = stats.prefix_cache_stats;
    ours["stats"] = {stats.num_running_reqs, stats.num_waiting_reqs, stats.num_skipped_waiting_reqs,
                     stats.kv_cache_usage};
    ours["prefix"] = {
        prefix.requests,          prefix.queries,        prefix.hits, prefix.preempted_requests,
        prefix.preempted_queries, prefix.preempted_hits, prefix.reset};
    if (expected.contains("spec_stats")) ours["spec_stats"] = SpecStats(stats);
    TakeOutputs(&outputs, &ours);
    if (has_connector_) {
      AddTransfers(stats, &ours);
    } else if (expected.contains("computed")) {
      ours["computed"] = ours["pending_drafts"] = Json::array();
      for (const Request* request : scheduler_.running()) {
        ours["computed"].push_back(request->num_computed_tokens);
        ours["pending_drafts"].push_back(request->drafts.token_ids.size());
      }
    }
    ours["running"] = Indices(scheduler_.running());
    ours["waiting"] = Indices(scheduler_.Waiting());
    ours["free"] = kv_cache_.pool().num_free();
    ours["free_crc"] = FreeCrc();
    ours["cached_hashes"] = kv_cache_.pool().num_cached_hashes();
    if (expected.contains("kv_events")) ours["kv_events"] = Events();
    if (ours == expected) return true;
    for (const auto& [key, value] : expected.items()) {
      INFO(key << "\n  ours     " << ours[key].dump() << "\n  recorded " << value.dump());
      CHECK(ours[key] == value);
    }
    FAIL_CHECK(scheduler_.DebugString());
    return false;
  }

  void Expect(const char* key, const Json& expected) {
    connector_.Expect(expected.contains(key) ? expected[key] : Json());
  }

  // Without any calls, a recorded step may lack the key.
  void TakeCalls(const char* key, Json* ours) {
    Json calls = connector_.TakeCalls();
    if (!calls.empty() || ours->contains(key)) (*ours)[key] = std::move(calls);
  }

  void AddTransfers(const wire::SchedulerStats& stats, Json* ours) {
    TakeCalls("update_calls", ours);
    (*ours)["has_sync_loads"] = connector_.has_sync_loads;
    (*ours)["fetch"] = RecordedConnector::FetchStages(stats);
    (*ours)["ext_prefix"] = RecordedConnector::Lookups(stats);
    Json holding = Json::array(), computed = Json::array();
    for (const Request* request : scheduler_.Holding()) {
      holding.push_back({IndexOf(request->id()), wire::RequestStatusName(request->status),
                         request->known.total()});
    }
    for (const Request* request : scheduler_.running()) {
      computed.push_back({IndexOf(request->id()), request->num_computed_tokens});
    }
    std::vector<int> kept;
    for (const auto& one : scheduler_.transfers().kept()) kept.push_back(IndexOf(one.id));
    std::sort(kept.begin(), kept.end());
    (*ours)["holding"] = holding;
    (*ours)["computed"] = computed;
    (*ours)["kept"] = kept;
  }

  // The worker is sent such a request again, although it went on running.
  bool WasRolledBack(int i) const {
    const Request* request = scheduler_.Find("r" + std::to_string(i));
    return has_connector_ && request != nullptr && num_preemptions_.contains(i) &&
           request->status == wire::RequestStatus::kRunning &&
           request->num_preemptions == num_preemptions_.at(i);
  }

  Json Apply(const Json& ops) {
    Json done = ops;
    for (Json& op : done) {
      const std::string what = op[0];
      if (what == "add") {
        const Json& request = trace_["requests"][op[1].get<size_t>()];
        const Status added =
            scheduler_.Add(RequestOf(request, trace_["config"]["eos_token_id"]), now_,
                           {.grammar = false, .adapter = AdapterOf(request)});
        REQUIRE(added.ok());
        sequences_[op[1]] = request["prompt"].get<std::vector<TokenId>>();
      } else if (what == "abort") {
        scheduler_.Abort("r" + std::to_string(op[1].get<int>()));
      } else if (what == "abort_all") {
        scheduler_.AbortAll();
      } else if (what == "reset") {
        op.back() = scheduler_.ResetPrefixCache(op[1], now_, has_connector_ && op[2]);
      } else if (what == "pending_frees") {
        connector_.frees_soon = op[1];
      } else if (what == "pause") {
        scheduler_.SetPauseState(op[1] == "none"  ? PauseState::kUnpaused
                                 : op[1] == "new" ? PauseState::kPausedNew
                                                  : PauseState::kPausedAll);
      } else {
        FAIL("unknown operation " << what);
      }
    }
    return done;
  }

  // This step frees the slots of requests that were preempted or have finished.
  void CompareFreed(const SchedulerOutput& step, const Json& expected) {
    std::vector<int> freed;
    for (RequestSlot slot : step.freed_slots) {
      if (!WasRolledBack(slot_owner_.at(slot))) freed.push_back(slot_owner_.at(slot));
    }
    const auto preempted = expected["preempted"].get<std::vector<int>>();
    REQUIRE(freed.size() >= preempted.size());
    CHECK(std::equal(preempted.rbegin(), preempted.rend(), freed.rbegin()));
    const auto finished = expected["finished"].get<std::set<int>>();
    std::set<int> ours;
    for (int i : freed) {
      if (!finished.contains(i)) ours.insert(i);
    }
    std::set<int> recorded;
    for (int i : expected["preempted_out"]) {
      if (!finished.contains(i)) recorded.insert(i);
    }
    CHECK(ours == recorded);
  }

  Json Scheduled(const SchedulerOutput& step) {
    Json rows = Json::array();
    for (const AdmittedRequest& admitted : step.admitted) {
      const auto idx = static_cast<size_t>(admitted.request_idx);
      slot_owner_[step.requests[idx].slot] = IndexOf(*admitted.request_id);
      const auto& sequence = sequences_.at(IndexOf(*admitted.request_id));
      CHECK(std::equal(sequence.begin(), sequence.end(), admitted.token_ids.begin(),
                       admitted.token_ids.end()));
    }
    int32_t total = 0;
    for (const ScheduledRequest& request : step.requests) {
      Json blocks = nullptr;
      for (BlockId block : step.NewBlocks(request)) blocks.push_back(Index(block));
      const int i = slot_owner_.at(request.slot);
      const bool is_known = request.kind == ScheduledKind::kRunning || WasRolledBack(i);
      const char* kind = is_known ? "c" : request.kind == ScheduledKind::kNew ? "n" : "r";
      if (is_known && request.kind != ScheduledKind::kRunning) {
        blocks.erase(blocks.begin(), blocks.begin() + num_blocks_.at(i));
        if (blocks.empty()) blocks = nullptr;
      }
      num_blocks_[i] = static_cast<int>(blocks.size()) + (is_known ? num_blocks_.at(i) : 0);
      const Request* running = scheduler_.Find("r" + std::to_string(i));
      num_preemptions_[i] = running->num_preemptions;
      rows.push_back({i, request.num_scheduled_tokens, kind, request.num_computed_tokens, blocks});
      if (trace_["config"].contains("spec")) {
        Json drafts = nullptr;
        for (const TokenId token : step.Drafts(request)) drafts.push_back(token);
        rows.back().push_back(drafts);
      }
      total += request.num_scheduled_tokens;
    }
    CHECK(total == step.num_scheduled_tokens);
    return rows;
  }

  ModelOutput Sample(const SchedulerOutput& step) const {
    ModelOutput result;
    for (const ScheduledRequest& scheduled : step.requests) {
      const int i = slot_owner_.at(scheduled.slot);
      const auto& sequence = sequences_.at(i);
      const bool reaches_end = scheduled.num_computed_tokens + scheduled.num_scheduled_tokens >=
                               static_cast<int32_t>(sequence.size());
      CHECK(scheduled.needs_sample == reaches_end);
      result.sampled_token_ids.push_back(reaches_end ? NextToken(i, sequence) : kNoToken);
    }
    return result;
  }

  // What the recorded model sampled, and the drafts that the recorded drafter made after it.
  ModelOutput Recorded(const SchedulerOutput& step, const Json& expected) const {
    std::map<int, std::vector<TokenId>> sampled, drafts;
    for (const Json& row : expected["sampled"])
      sampled[row[0]] = row[1].get<std::vector<TokenId>>();
    for (const Json& row : expected["drafts"]) drafts[row[0]] = row[1].get<std::vector<TokenId>>();
    ModelOutput result;
    for (size_t idx = 0; idx < step.requests.size(); ++idx) {
      const ScheduledRequest& scheduled = step.requests[idx];
      const int i = slot_owner_.at(scheduled.slot);
      CHECK(scheduled.needs_sample == sampled.contains(i));
      std::vector<TokenId>& tokens = sampled[i];
      result.sampled_token_ids.push_back(tokens.empty() ? kNoToken : tokens.back());
      if (!tokens.empty()) tokens.pop_back();
      if (scheduled.num_draft_tokens == 0 && drafts[i].empty()) continue;
      result.drafts.push_back({.request_idx = static_cast<int32_t>(idx),
                               .num_verified = scheduled.num_draft_tokens,
                               .begin = static_cast<int32_t>(result.draft_token_ids.size()),
                               .num_accepted = static_cast<int32_t>(tokens.size()),
                               .num_proposed = static_cast<int32_t>(drafts[i].size())});
      for (const auto* ids : {&tokens, &drafts[i]}) {
        result.draft_token_ids.insert(result.draft_token_ids.end(), ids->begin(), ids->end());
      }
    }
    return result;
  }

  static Json SpecStats(const wire::SchedulerStats& stats) {
    if (!stats.spec_decoding_stats) return nullptr;
    const wire::SpecDecodingStats& spec = *stats.spec_decoding_stats;
    return {spec.num_drafts, spec.num_draft_tokens, spec.num_accepted_tokens,
            spec.num_accepted_tokens_per_pos, spec.num_draft_tokens_per_pos};
  }

  TokenId NextToken(int i, const std::vector<TokenId>& sequence) const {
    const Json& request = trace_["requests"][static_cast<size_t>(i)];
    const auto num_outputs = sequence.size() - request["prompt"].size();
    for (const Json& force : request["force"]) {
      if (force[0] == num_outputs) return force[1];
    }
    const auto pos = static_cast<int64_t>(sequence.size());
    return static_cast<TokenId>((int64_t{1000003} * i + 7919 * pos) %
                                trace_["config"]["vocab"].get<int64_t>());
  }

  void TakeOutputs(ClientOutputs* outputs, Json* ours) {
    std::vector<ClientMessage> messages;
    outputs->Take(now_, &messages);
    Json records = Json::array();
    std::vector<int> finished;
    for (const ClientMessage& message : messages) {
      for (const wire::EngineCoreOutput& output : message.outputs.outputs) {
        records.push_back(Record(output));
      }
      for (const RequestId& id : message.outputs.finished_requests) finished.push_back(IndexOf(id));
    }
    std::sort(finished.begin(), finished.end());
    (*ours)["out"] = records;
    (*ours)["client_finished"] = finished;
  }

  Json Record(const wire::EngineCoreOutput& output) {
    const int i = IndexOf(output.request_id);
    for (TokenId token : output.new_token_ids) sequences_[i].push_back(token);
    Json finish_reason = nullptr;
    if (output.finish_reason) finish_reason = wire::FinishReasonName(*output.finish_reason);
    Json stop_reason = nullptr;
    if (const auto* id = std::get_if<int64_t>(&output.stop_reason)) stop_reason = *id;
    if (const auto* words = std::get_if<std::string>(&output.stop_reason)) stop_reason = *words;
    Json events = Json::array();
    for (const wire::EngineCoreEvent& event : output.events) {
      const char* names[] = {"", "QUEUED", "SCHEDULED", "PREEMPTED"};
      events.push_back(names[static_cast<int>(event.type)]);
    }
    Json prefill = nullptr;
    if (output.prefill_stats) {
      const wire::PrefillStats& stats = *output.prefill_stats;
      prefill = {stats.num_prompt_tokens,          stats.num_computed_tokens,
                 stats.num_cached_tokens,          stats.num_local_cached_tokens,
                 stats.num_external_cached_tokens, stats.num_cache_creation_tokens};
    }
    Json row = {i, output.new_token_ids, finish_reason, stop_reason, events, prefill};
    if (has_connector_) {
      row.push_back(output.kv_transfer_params
                        ? RecordedConnector::Unpacked(*output.kv_transfer_params)
                        : Json(nullptr));
    }
    return row;
  }

  Json Events() {
    Json rows = Json::array();
    for (const KvCacheEvent& event : kv_cache_.TakeEvents()) {
      if (const auto* stored = std::get_if<BlockStored>(&event)) {
        Json hashes = Json::array();
        Json extra = Json::array();
        for (const BlockHash& hash : stored->block_hashes) {
          const auto block = stored->first_block + static_cast<int32_t>(hashes.size());
          hashes.push_back(hash.ToEventInteger());
          const auto values = stored->extra_keys.EventValues(block, kv_cache_.config().block_size);
          extra.push_back(values.empty() ? Json() : Json(values));
        }
        Json parent = nullptr;
        if (stored->parent) parent = stored->parent->ToEventInteger();
        rows.push_back({"stored", hashes, parent, stored->token_ids, kv_cache_.config().block_size,
                        "GPU", extra, 0});
        if (trace_["config"].contains("spec")) AddGuestKeys(*stored, &rows.back());
      } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
        rows.push_back({"removed", {removed->block_hash.ToEventInteger()}, "GPU", 0});
      } else {
        rows.push_back({"cleared"});
      }
    }
    return rows;
  }

  // What adapters and drafters add to a stored block.
  static void AddGuestKeys(const BlockStored& stored, Json* row) {
    const Adapter& adapter = stored.extra_keys.adapter;
    row->push_back(adapter.id == 0 ? Json() : Json(adapter.id));
    row->push_back(adapter.id == 0 ? Json() : Json(adapter.name));
    Json next = nullptr;
    for (const TokenId token : stored.next_token_ids) next.push_back(Json::array({token}));
    row->push_back(next);
  }

  void CompareEnd() {
    CHECK(FreeList() == trace_["free_list"].get<std::vector<int>>());
    if (!trace_.contains("block_hashes")) return;
    BlockHasher hasher(kv_cache_.config().block_size, HashAlgorithm::kSha256Cbor,
                       BlockHasher::kDefaultSeed, kv_cache_.config().hashes_next_token);
    for (const auto& [id, recorded] : trace_["block_hashes"].items()) {
      const int i = IndexOf(id);
      const Json& request = trace_["requests"][static_cast<size_t>(i)];
      const Json& salt = request["cache_salt"];
      std::vector<BlockHash> hashes;
      ExtraKeys keys;
      keys.adapter = AdapterOf(request);
      if (!salt.is_null()) keys.cache_salt = salt;
      hasher.Extend(sequences_.at(i), keys, &hashes);
      Json ours = Json::array();
      for (const BlockHash& hash : hashes) ours.push_back(hash.ToHex());
      INFO(id);
      CHECK(ours == recorded);
    }
  }

  std::vector<int> FreeList() const {
    std::vector<int> list;
    for (BlockId block : kv_cache_.pool().FreeList()) list.push_back(Index(block));
    return list;
  }

  uint64_t FreeCrc() const {
    std::string text;
    for (int block : FreeList()) text += (text.empty() ? "" : ",") + std::to_string(block);
    return crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()));
  }

  static int IndexOf(const RequestId& id) { return std::stoi(id.substr(1)); }
  static Json Indices(const std::vector<Request*>& requests) {
    Json indices = Json::array();
    for (const Request* request : requests) indices.push_back(IndexOf(request->id()));
    return indices;
  }

  const Json& trace_;
  KvCacheManager kv_cache_;
  const bool has_connector_;
  RecordedConnector connector_;
  Scheduler scheduler_;
  double now_ = 0;
  std::map<int, std::vector<TokenId>> sequences_;  // as the clients see them
  std::map<RequestSlot, int> slot_owner_;          // the last one
  // When it was scheduled last.
  std::map<int, int> num_blocks_;
  std::map<int, int32_t> num_preemptions_;
};

}  // namespace

size_t ReplayTraces(const std::string& path, std::string_view policy) {
  size_t num_replayed = 0;
  for (const Json& trace : ReadGzipLines(path)) {
    if (!policy.empty() && trace["config"]["policy"] != policy) continue;
    Replay(trace).Run();
    ++num_replayed;
  }
  return num_replayed;
}

}  // namespace tandem
