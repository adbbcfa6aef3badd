#include "engine_core/replayed_executor.h"

#include <algorithm>
#include <sstream>

#include "common/check.h"
#include "engine_core/executor/kv_cache_size.h"

namespace tandem {

extern "C" [[gnu::noinline]] void TandemReplayStep(int64_t step) {
  asm volatile("" : : "r"(step) : "memory");  // else the call is left out
}

int32_t ReplayedExecutor::NumSpareBlocks(const ExecutorLimits& limits) {
  if (limits.groups.num_local == 0) return 0;
  return (limits.max_model_len + limits.block_size - 1) / limits.block_size * limits.groups.count();
}

Status ReplayedExecutor::End(const std::string& why) {
  has_ended_ = true;
  return CancelledError(why);
}

Status ReplayedExecutor::Submit(const SchedulerOutput& step) {
  if (options_.until_step > 0 && num_submitted_ + 1 >= options_.until_step) {
    return End("stopped before step " + std::to_string(num_submitted_ + 1));
  }
  cursor_->step = ++num_submitted_;
  RETURN_IF_ERROR(Compare(step));
  TandemReplayStep(num_submitted_);
  if (cursor_->next_kind() == RecordKind::kExecutorLost) return TakeLoss();
  ModelOutput* result = results_.Push();
  std::vector<RequestId>& ids = ids_.emplace_back();
  for (const ScheduledRequest& request : step.requests)
    ids.push_back(RequestAt(request.slot)->id());
  if (options_.model == nullptr) return OkStatus();
  return RunModel(step, result);
}

Status ReplayedExecutor::TakeLoss() {
  ByteReader payload(*cursor_->Take(RecordKind::kExecutorLost));
  return UnpackStatus(&payload);
}

Status ReplayedExecutor::TakeChange() {
  const std::optional<std::string_view> payload = cursor_->Take(RecordKind::kMemory);
  if (!payload) return OkStatus();  // a difference ends the next step
  ByteReader in(*payload);
  return UnpackStatus(&in);
}

Status ReplayedExecutor::Compare(const SchedulerOutput& step) {
  const SubmittedStep own = DescribeStep(step, num_submitted_);
  const std::optional<std::string_view> payload = cursor_->Take(RecordKind::kSubmitted);
  if (!payload) {
    if (cursor_->difference()) return End("it differs");
    return OkStatus();  // the recorded process got no further
  }
  ASSIGN_OR_RETURN(const SubmittedStep recorded, UnpackSubmitted(*payload));
  if (own == recorded) return OkStatus();
  std::ostringstream what;
  what << "scheduled are " << own.num_requests << " requests, " << own.num_tokens
       << " tokens, digest " << std::hex << own.digest << std::dec << "; recorded is step "
       << recorded.number << " with " << recorded.num_requests << " requests, "
       << recorded.num_tokens << " tokens, digest " << std::hex << recorded.digest;
  cursor_->Differ(what.str());
  return End("it differs");
}

Status ReplayedExecutor::Collect(ModelOutput* result) {
  ++num_collected_;
  if (cursor_->next_kind() == RecordKind::kExecutorLost) return TakeLoss();
  results_.Pop(result);
  const std::optional<std::string_view> payload = cursor_->Take(RecordKind::kCollected);
  if (cursor_->difference()) return End("it differs");
  if (!payload) {
    if (options_.model != nullptr) return OkStatus();
    return End("the recorded process ended in step " + std::to_string(num_collected_));
  }
  ModelOutput recorded;
  int64_t number = 0;
  ForcedRuns forced;  // the step's masks have them
  RETURN_IF_ERROR(UnpackCollected(*payload, &number, &recorded, &forced));
  if (number != num_collected_) return DataLossError("a step's result is missing");
  if (options_.model == nullptr) {
    *result = std::move(recorded);
  } else {
    CompareResult(recorded, *result);
    // What is guessed changes no token (NameDrafts).
    result->drafts = std::move(recorded.drafts);
    result->draft_token_ids = std::move(recorded.draft_token_ids);
  }
  ids_.pop_front();
  return cursor_->difference() ? End("it differs") : OkStatus();
}

void ReplayedExecutor::CompareResult(const ModelOutput& recorded, const ModelOutput& result) {
  const std::vector<TokenId>&own = result.sampled_token_ids, &other = recorded.sampled_token_ids;
  if (own.size() != other.size()) {
    return cursor_->Differ("a result for " + std::to_string(own.size()) +
                           " requests, recorded are " + std::to_string(other.size()));
  }
  // The token of a request that fails is not used.
  std::vector<bool> fails(own.size());
  for (const RequestResult& one : recorded.results) {
    const auto i = static_cast<size_t>(one.request_idx);
    if (i < fails.size() && !one.status.ok()) fails[i] = true;
  }
  for (const RequestResult& one : result.results) {
    const auto i = static_cast<size_t>(one.request_idx);
    if (one.status.ok() || fails[i]) continue;
    return cursor_->Differ("request " + ids_.front()[i] + " fails: " + one.status.ToString());
  }
  for (size_t i = 0; i < own.size(); ++i) {
    if (fails[i]) continue;
    ++num_compared_tokens_;
    if (own[i] == other[i]) continue;
    return cursor_->Differ("request " + ids_.front()[i] + " gets token " + std::to_string(own[i]) +
                           ", recorded is " + std::to_string(other[i]));
  }
}

// ---- the model ----

const Request* ReplayedExecutor::RequestAt(RequestSlot slot) const {
  const std::vector<Request*>& running = engine_->scheduler().running();
  const auto found = std::ranges::find(running, slot, &Request::slot);
  CHECK(found != running.end()) << "slot " << Index(slot);
  return *found;
}

Status ReplayedExecutor::RunModel(const SchedulerOutput& step, ModelOutput* result) {
  SchedulerOutput own = step;
  NameDrafts(&own);
  params_.clear();
  RETURN_IF_ERROR(FreeSlots(std::exchange(own.freed_slots, {})));
  for (size_t i = 0; i < own.requests.size(); ++i) {
    const ScheduledRequest scheduled = own.requests[i];
    const auto slot = static_cast<size_t>(Index(scheduled.slot));
    if (is_live_[slot]) continue;
    const Request& request = *RequestAt(scheduled.slot);
    if (request.images != nullptr) {
      return End("request " + request.id() +
                 " has images, whose pixels are not recorded; --replay-tokens recorded goes on "
                 "without the model");
    }
    RETURN_IF_ERROR(Warm(request, scheduled));
    if (scheduled.kind == ScheduledKind::kRunning) Enter(request, i, &own);
    is_live_[slot] = true;
  }
  std::ranges::sort(own.admitted, {}, &AdmittedRequest::request_idx);
  if (!own.has_work()) return OkStatus();
  RETURN_IF_ERROR(RestoreAdapters(&own));
  RETURN_IF_ERROR(options_.model->Execute(own, result));
  for (const ScheduledRequest& scheduled : own.requests) MarkWritten(scheduled);
  return OkStatus();
}

// A step that overlaps another names no drafts, because the worker has them before the scheduler
// does. They depend on more than tokens (a clock, earlier requests), so the model proposes none and
// gets those that were recorded with the result of the step before.
void ReplayedExecutor::NameDrafts(SchedulerOutput* step) const {
  step->num_drafts_wanted = 0;
  if (ids_.size() < 2) return;
  const std::optional<std::string_view> payload = cursor_->ResultOf(num_submitted_ - 1);
  ModelOutput recorded;
  ForcedRuns forced;
  int64_t number = 0;
  if (!payload || !UnpackCollected(*payload, &number, &recorded, &forced).ok()) return;
  const std::vector<RequestId>&before = ids_[ids_.size() - 2], &now = ids_.back();
  for (const DraftResult& drafted : recorded.drafts) {
    const auto i = static_cast<size_t>(drafted.request_idx);
    const auto found = i < before.size() ? std::ranges::find(now, before[i]) : now.end();
    if (found == now.end()) continue;
    const ScheduledRequest& request = step->requests[static_cast<size_t>(found - now.begin())];
    const std::span<const TokenId> proposed = recorded.Proposed(drafted);
    const size_t count = std::min(proposed.size(), static_cast<size_t>(request.num_draft_tokens));
    for (size_t j = 0; j < count; ++j) {
      TokenId& draft = step->draft_token_ids[static_cast<size_t>(request.drafts_begin) + j];
      if (draft == kNoToken) draft = proposed[j];
    }
  }
}

Status ReplayedExecutor::FreeSlots(const std::vector<RequestSlot>& slots) {
  SchedulerOutput frees;
  for (const RequestSlot slot : slots) {
    const auto i = static_cast<size_t>(Index(slot));
    if (is_live_[i]) frees.freed_slots.push_back(slot);
    is_live_[i] = false;
  }
  if (!frees.has_work()) return OkStatus();
  ModelOutput nothing;
  return options_.model->Execute(frees, &nothing);
}

// A request that ran before the checkpoint: the model gets it like one that resumes.
void ReplayedExecutor::Enter(const Request& request, size_t request_idx, SchedulerOutput* step) {
  const std::span<const BlockId> table = engine_->kv_cache().BlockTable(request.slot);
  ScheduledRequest& scheduled = step->requests[request_idx];
  scheduled.kind = ScheduledKind::kResumed;
  scheduled.new_blocks_begin = static_cast<int32_t>(step->new_block_ids.size());
  scheduled.num_new_blocks = static_cast<int32_t>(table.size());
  step->new_block_ids.insert(step->new_block_ids.end(), table.begin(), table.end());
  step->admitted.push_back({.request_idx = static_cast<int32_t>(request_idx),
                            .request_id = &request.id(),
                            .sampling_params = WithoutPromptLogprobs(request),
                            .token_ids = request.token_ids,
                            .num_prompt_tokens = request.num_prompt_tokens,
                            .embeddings = request.extra_keys.embeddings,
                            .adapter = request.adapter()});
}

// A recording has no weights of adapters.
Status ReplayedExecutor::RestoreAdapters(SchedulerOutput* step) {
  for (AdmittedRequest& admitted : step->admitted) {
    if (admitted.adapter == nullptr) continue;
    const auto [entry, is_new] = adapters_.try_emplace(admitted.adapter->id, *admitted.adapter);
    if (is_new) {
      if (!options_.adapters) return End("adapters cannot be read in this replay");
      StatusOr<std::shared_ptr<const AdapterWeights>> weights = options_.adapters(entry->second);
      if (!weights.ok()) return End(weights.status().message());
      entry->second.weights = *std::move(weights);
    }
    admitted.adapter = &entry->second;
  }
  return OkStatus();
}

// They went to a client before the checkpoint or are not compared.
const wire::SamplingParams* ReplayedExecutor::WithoutPromptLogprobs(const Request& request) {
  wire::SamplingParams& params = params_.emplace_back(request.wire.sampling_params);
  params.prompt_logprobs.reset();
  params.prompt_logprob_token_ids = {};
  return &params;
}

Status ReplayedExecutor::Warm(const Request& request, const ScheduledRequest& scheduled) {
  const ExecutorLimits& limits = options_.limits;
  const int32_t num_tokens = scheduled.num_computed_tokens;
  const int32_t num_blocks =
      (num_tokens + limits.block_size - 1) / limits.block_size * limits.groups.count();
  const std::span<const BlockId> whole = engine_->kv_cache().BlockTable(request.slot);
  const auto used = whole.first(static_cast<size_t>(num_blocks));
  const bool is_cold = std::ranges::any_of(used, [this](BlockId block) {
    return block != kNullBlock && !is_warm_[static_cast<size_t>(Index(block))];
  });
  if (!is_cold) return OkStatus();
  std::vector<BlockId> table(whole.begin(), whole.end());
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i] == kNullBlock) table[i] = BlockId{limits.num_blocks + static_cast<int32_t>(i)};
  }
  ModelOutput nothing;
  for (int32_t begin = 0; begin < num_tokens;) {
    const int32_t count = std::min(num_tokens - begin, limits.max_num_batched_tokens);
    SchedulerOutput step;
    ScheduledRequest& part = step.requests.emplace_back();
    part = {.slot = request.slot, .num_computed_tokens = begin, .num_scheduled_tokens = count};
    step.num_scheduled_tokens = count;
    if (begin == 0) {
      part.kind = ScheduledKind::kNew;
      part.num_new_blocks = static_cast<int32_t>(table.size());
      step.new_block_ids = table;
      step.admitted.push_back({.request_idx = 0,
                               .request_id = &request.id(),
                               .sampling_params = WithoutPromptLogprobs(request),
                               .token_ids = request.token_ids,
                               .num_prompt_tokens = request.num_prompt_tokens,
                               .embeddings = request.extra_keys.embeddings,
                               .adapter = request.adapter()});
    }
    RETURN_IF_ERROR(RestoreAdapters(&step));
    RETURN_IF_ERROR(options_.model->Execute(step, &nothing));
    begin += count;
  }
  for (const BlockId block : used) is_warm_[static_cast<size_t>(Index(block))] = true;
  is_live_[static_cast<size_t>(Index(request.slot))] = true;
  return FreeSlots({request.slot});
}

void ReplayedExecutor::MarkWritten(const ScheduledRequest& scheduled) {
  const int32_t block_size = options_.limits.block_size;
  const auto num_groups = static_cast<size_t>(options_.limits.groups.count());
  const std::span<const BlockId> table = engine_->kv_cache().BlockTable(scheduled.slot);
  const int32_t end = scheduled.num_computed_tokens + scheduled.num_scheduled_tokens;
  for (int32_t i = scheduled.num_computed_tokens / block_size; i * block_size < end; ++i) {
    const size_t place = static_cast<size_t>(i) * num_groups;
    for (const BlockId block : table.subspan(place, num_groups)) {
      is_warm_[static_cast<size_t>(Index(block))] = true;
    }
  }
}

}  // namespace tandem
