#include "engine_core/scheduler/request_table.h"

#include <algorithm>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "common/check.h"
#include "common/log_event.h"

namespace tandem {

RequestTable::RequestTable(const SchedulerConfig& config, KvCacheManager* kv_cache,
                           KvTransfers* transfers, EncoderCache* encoder_cache)
    : max_model_len_(config.max_model_len),
      num_speculative_tokens_(config.drafts.num_speculative_tokens),
      kv_cache_(kv_cache),
      transfers_(transfers),
      encoder_cache_(encoder_cache),
      waiting_(MakeRequestQueue(config.policy, config.seconds_per_prompt_token())),
      holding_(MakeRequestQueue(config.policy, config.seconds_per_prompt_token())),
      adapters_(config.max_loras) {
  for (int32_t i = config.max_num_seqs; i-- > 0;) free_slots_.push_back(RequestSlot{i});
  running_.reserve(static_cast<size_t>(config.max_num_seqs));
  freed_slots_.reserve(static_cast<size_t>(config.max_num_seqs));
}

Request* RequestTable::Add(wire::EngineCoreRequest from_wire, const RequestNeeds& needs,
                           double now) {
  auto added = std::make_unique<Request>(std::move(from_wire), num_added_++, needs);
  Request* request = added.get();
  const bool inserted = requests_.emplace(request->id(), std::move(added)).second;
  CHECK(inserted) << request->id() << " is in use";
  request->events.push_back({wire::EventType::kQueued, now});
  waiting_->Add(request);
  if (needs.grammar) request->status = kAwaitsGrammar;
  adapters_.Enter(needs.adapter);
  encoder_cache_->MakeRoomFor(request->images.get());
  transfers_->Add(request);
  NoteWait(*request, false);
  return request;
}

void RequestTable::NoteWait(const Request& request, bool awaited_event) {
  if (request.awaits_event() == awaited_event) return;
  awaited_event ? --num_awaiting_events_ : ++num_awaiting_events_;
}

Request* RequestTable::Find(const RequestId& id) const {
  const auto entry = requests_.find(id);
  return entry == requests_.end() ? nullptr : entry->second.get();
}

void RequestTable::ExtendHashes(Request* request) const {
  kv_cache_->ExtendHashes(request->token_ids, request->extra_keys, &request->block_hashes);
}

std::vector<Request*> RequestTable::InOrderOfAdding() const {
  std::vector<Request*> all;
  all.reserve(requests_.size());
  for (const auto& [id, request] : requests_) all.push_back(request.get());
  std::sort(all.begin(), all.end(),
            [](const Request* a, const Request* b) { return a->order < b->order; });
  return all;
}

int64_t RequestTable::NumImageBytes(const RequestImages* but) const {
  std::unordered_set<const RequestImages*> counted = {but};
  int64_t num_bytes = 0;
  for (const auto& [id, request] : requests_) {
    const RequestImages* images = request->images.get();
    if (images != nullptr && counted.insert(images).second) num_bytes += NumBytes(*images);
  }
  return num_bytes;
}

void RequestTable::EndWait(Request* request) {
  const bool awaited_event = request->awaits_event();
  request->status = request->num_preemptions > 0 ? wire::RequestStatus::kPreempted
                                                 : wire::RequestStatus::kWaiting;
  NoteWait(*request, awaited_event);
}

void RequestTable::EndAdapterWait(Request* request, const Adapter& adapter) {
  CHECK(request->awaits_adapter && request->adapter_id() == adapter.id) << request->id();
  request->extra_keys.adapter = adapter;
  request->awaits_adapter = false;
  NoteWait(*request, true);
  ExtendHashes(request);
}

void RequestTable::HoldForLoad(Request* request, const KnownTokens& known) {
  if (!request->is_holding) {
    waiting_->Remove(request);
    holding_->Add(request);
    request->is_holding = true;
  }
  request->held = kv_cache_->Detach(next_slot());
  request->holds_blocks = true;
  request->known = known;
  NoteFirstKnown(request);
  request->status = wire::RequestStatus::kWaitingForRemoteKvs;
}

void RequestTable::NoteFirstKnown(Request* request) {
  if (request->num_preemptions == 0) request->first_known = request->known;
}

void RequestTable::CutLoad(Request* request, int32_t num_valid_tokens) {
  KnownTokens& known = request->known;
  known.num_local = std::min(known.num_local, num_valid_tokens);
  known.num_remote = std::min(known.num_remote, num_valid_tokens - known.num_local);
}

void RequestTable::MoveToWaiting(Request* request) {
  CHECK(request->is_holding && !request->holds_blocks) << request->id();
  holding_->Remove(request);
  request->is_holding = false;
  waiting_->AddFirst(request);
}

void RequestTable::EndLoad(Request* request) {
  const int32_t num_valid = request->known.total();
  if (num_valid > 0) {
    kv_cache_->Attach(next_slot(), std::move(request->held));
    kv_cache_->RegisterUpTo(next_slot(), request->sequence(), num_valid);
    request->held = kv_cache_->Detach(next_slot());
    // Its last token is computed in any case, for the logits.
    if (num_valid == request->num_tokens()) --request->known.num_remote;
  } else {
    kv_cache_->Free(std::move(request->held));
    request->held = {};
    request->holds_blocks = false;
    ++request->num_failed_loads;
  }
  request->load = KvLoad::kNone;
  EndWait(request);
}

void RequestTable::SetPassedOver(Request* request, bool is_passed_over) {
  if (std::exchange(request->is_passed_over, is_passed_over) == is_passed_over) return;
  is_passed_over ? ++num_passed_over_ : --num_passed_over_;
}

void RequestTable::LeaveQueue(Request* request) {
  SetPassedOver(request, false);
  (request->is_holding ? holding_ : waiting_)->Remove(request);
  request->is_holding = request->holds_blocks = false;
  request->load = KvLoad::kNone;
  request->fetch = KvFetch::kNone;
}

void RequestTable::Admit(Request* request, const KnownTokens& known, double now) {
  const bool was_looked_up = !request->holds_blocks;
  LeaveQueue(request);
  adapters_.Add(request->adapter_id());
  request->slot = next_slot();
  free_slots_.pop_back();
  running_.push_back(request);
  request->status = wire::RequestStatus::kRunning;
  request->known = known;
  request->num_computed_tokens = known.total();
  if (was_looked_up) NoteFirstKnown(request);
  request->events.push_back({wire::EventType::kScheduled, now});
  // Room for all tokens it can get, so that decoding does not allocate.
  const int64_t max_tokens =
      std::min<int64_t>(max_model_len_, int64_t{request->num_prompt_tokens} +
                                            request->wire.sampling_params.max_tokens);
  request->token_ids.reserve(static_cast<size_t>(max_tokens));
  request->drafts.token_ids.reserve(static_cast<size_t>(num_speculative_tokens_));
  if (kv_cache_->config().enable_prefix_caching) {
    request->block_hashes.reserve(static_cast<size_t>(max_tokens / kv_cache_->config().block_size));
  }
}

void RequestTable::Preempt(Request* request, StaleOutput stale_output, double now) {
  LOG_EVENT(LogLevel::kDebug, "request preempted")
      .Add("id", request->id())
      .Add("computed_tokens", request->num_computed_tokens);
  std::erase(running_, request);
  ForgetUncomputed(request);
  transfers_->Release(request);
  encoder_cache_->Release(*request);
  kv_cache_->Free(request->slot);
  ReleaseSlot(request);
  request->known = {};
  request->num_computed_tokens = 0;
  request->num_output_placeholders = 0;
  request->drafts.Clear();
  // Once dropped, an output stays dropped: its position is sampled again.
  request->drops_stale_output = stale_output == StaleOutput::kDrop ||
                                (request->drops_stale_output && request->num_stale_steps > 0);
  request->num_stale_steps = request->num_steps_in_flight;
  request->status = wire::RequestStatus::kPreempted;
  ++request->num_preemptions;
  request->events.push_back({wire::EventType::kPreempted, now});
  waiting_->AddFirst(request);
}

void RequestTable::RollBack(Request* request, int32_t num_computed_tokens) {
  // It may hold rows of images that come after those which it needs again.
  encoder_cache_->Release(*request);
  request->num_computed_tokens = num_computed_tokens;
  request->num_output_placeholders = 0;
  request->drafts.Clear();
  request->drops_stale_output = true;
  request->num_stale_steps = request->num_steps_in_flight;
  request->mid_prefill = request->num_uncomputed_tokens() > 1;
  if (!std::exchange(request->enters_again, true)) freed_slots_.push_back(request->slot);
}

void RequestTable::ForgetUncomputed(Request* request) {
  const int32_t num_computed = request->num_computed_tokens;
  if (kv_cache_->NumRegisteredTokens(request->slot) <= num_computed) return;
  kv_cache_->ForgetBeyond(request->slot, request->sequence(), num_computed);
}

void RequestTable::AwaitGrammar(Request* request, double now) {
  if (request->status == wire::RequestStatus::kRunning) Preempt(request, StaleOutput::kDrop, now);
  if (request->status == kAwaitsGrammar || request->holds_blocks) return;
  const bool awaited_event = request->awaits_event();
  request->status = kAwaitsGrammar;
  NoteWait(*request, awaited_event);
}

wire::RawValue RequestTable::Finish(Request* request, wire::RequestStatus status) {
  if (request->status == wire::RequestStatus::kRunning) ForgetUncomputed(request);
  wire::RawValue params = transfers_->FreeOrKeep(request, status);
  encoder_cache_->End(*request);
  if (request->status == wire::RequestStatus::kRunning) {
    ReleaseSlot(request);
  } else {
    LeaveQueue(request);
  }
  adapters_.Leave(request->adapter_id());
  const bool awaited_event = request->awaits_event();
  request->status = status;
  request->awaits_adapter = false;
  NoteWait(*request, awaited_event);
  finished_.push_back({request->id(), request->wire.client_index});
  return params;
}

void RequestTable::RemoveFinished() {
  std::erase_if(departed_, [](const auto& request) { return request->num_steps_in_flight == 0; });
  if (finished_.empty()) return;
  std::erase_if(running_, [](const Request* request) { return request->finished(); });
  for (const FinishedRequest& finished : finished_) {
    // An aborted request is gone already, and its id may be another's by now.
    const Request* request = Find(finished.id);
    if (request != nullptr && request->finished()) Remove(finished.id);
  }
}

void RequestTable::Abort(Request* request) {
  Finish(request, wire::RequestStatus::kFinishedAborted);
  std::erase(running_, request);
  Remove(request->id());
}

void RequestTable::Remove(const RequestId& id) {
  const auto entry = requests_.find(id);
  if (entry->second->num_steps_in_flight > 0) departed_.push_back(std::move(entry->second));
  requests_.erase(entry);
}

void RequestTable::ReleaseSlot(Request* request) {
  adapters_.Remove(request->adapter_id());
  free_slots_.push_back(request->slot);
  if (!std::exchange(request->enters_again, false)) freed_slots_.push_back(request->slot);
  request->slot = RequestSlot{-1};
}

std::string RequestTable::DebugString() const {
  std::string text;
  for (const Request* request : running_) text += DebugLine(*request);
  for (const Request* request : holding_->InOrder()) text += DebugLine(*request);
  for (const Request* request : waiting_->InOrder()) text += DebugLine(*request);
  return text;
}

std::string RequestTable::DebugLine(const Request& request) const {
  std::ostringstream line;
  line << "  " << request.id() << " " << wire::RequestStatusName(request.status) << " tokens "
       << request.num_prompt_tokens << "+" << request.num_output_tokens() << " computed "
       << request.num_computed_tokens << " slot " << Index(request.slot) << " preempted "
       << request.num_preemptions;
  if (request.status == wire::RequestStatus::kRunning) {
    line << " blocks";
    for (BlockId block : kv_cache_->BlockTable(request.slot)) line << " " << Index(block);
  } else if (request.holds_blocks) {
    line << " blocks";
    for (BlockId block : request.held.table) line << " " << Index(block);
  }
  line << "\n";
  return line.str();
}

}  // namespace tandem
