#include "engine_core/executor/step_drafts.h"

#include <algorithm>
#include <utility>

#include "engine_core/speculation/ngram_drafter.h"
#include "engine_core/speculation/suffix_drafter.h"

namespace tandem {
namespace {

// A pass of a drafter whose cost was not measured, relative to a step.
constexpr double kUnmeasuredPass = 0.1;

bool WasSampled(const ScheduledRequest& request, const StepSamples::Request& sampled) {
  return request.needs_sample && sampled.result.status.ok();
}

std::unique_ptr<Drafter> MakeDrafter(const SpeculativeConfig& config, int32_t num_slots,
                                     uint64_t seed) {
  if (config.has_model()) return nullptr;
  if (config.method == DraftMethod::kSuffix) {
    return std::make_unique<SuffixDrafter>(num_slots, config.suffix);
  }
  return std::make_unique<NgramDrafter>(num_slots, config.prompt_lookup_min,
                                        config.prompt_lookup_max, seed);
}

}  // namespace

StepDrafts::StepDrafts(const SpeculativeConfig& config, InputBatch* batch,
                       std::unique_ptr<PassDrafter> model, int64_t max_drafts, uint64_t seed)
    : batch_(batch),
      max_drafts_(max_drafts),
      replays_passes_(!config.enforce_eager),
      model_(std::move(model)),
      drafter_(MakeDrafter(config, batch->limits().max_num_seqs, seed)) {
  CHECK_EQ(model_ != nullptr, config.has_model());
  const auto num_slots = static_cast<size_t>(batch->limits().max_num_seqs);
  proposals_.resize(num_slots);
  for (std::vector<TokenId>& proposal : proposals_) {
    proposal.reserve(static_cast<size_t>(config.num_speculative_tokens));
  }
  max_tokens_.resize(num_slots);
  candidates_.reserve(num_slots);
  wishes_.reserve(num_slots);
  if (!config.adaptive) return;
  policy_.emplace(batch->limits().max_num_seqs, StepCost());
  if (model_) policy_->SetDraftCost(StepCost({{1, kUnmeasuredPass}, {2, 1.1 * kUnmeasuredPass}}));
}

Status StepDrafts::AllocateKvCache(int32_t num_blocks) {
  return model_ ? model_->AllocateKvCache(num_blocks) : OkStatus();
}

void StepDrafts::Measure(StepCost step) {
  if (!policy_) return;
  policy_->cost() = std::move(step);
  if (model_) policy_->SetDraftCost(StepCost(model_->Measure()));
}

// ---- before a step is laid out ----

void StepDrafts::Remove(RequestSlot slot) {
  if (drafter_) drafter_->End(Index(slot));
}

void StepDrafts::Admit(RequestSlot slot, const wire::SamplingParams& params) {
  const InputBatch::Row& row = batch_->row(slot);
  if (drafter_) drafter_->Begin(Index(slot), row.num_tokens);
  ProposalOf(slot).clear();
  const int64_t most = int64_t{row.num_prompt_tokens} + params.max_tokens;
  max_tokens_[static_cast<size_t>(Index(slot))] =
      static_cast<int32_t>(std::min<int64_t>(most, batch_->limits().max_model_len));
  if (policy_) policy_->Begin(Index(slot));
}

void StepDrafts::AppendBlocks(const ScheduledRequest& request, std::span<const BlockId> block_ids) {
  if (model_) model_->AppendBlocks(request, block_ids);
}

void StepDrafts::Place(const SchedulerOutput& step) {
  auto room = static_cast<size_t>(max_drafts_);
  for (const ScheduledRequest& request : step.requests) {
    const std::span<const TokenId> drafts = step.Drafts(request);
    batch_->PlaceDrafts(request.slot, drafts.first(std::min(drafts.size(), room)));
    room -= static_cast<size_t>(batch_->row(request.slot).num_drafts);
  }
}

// ---- after it was sampled and folded ----

void StepDrafts::Fold(const StepLayout& layout, const StepSamples& samples, ModelOutput* result) {
  candidates_.clear();
  num_wanted_ = layout.num_drafts_wanted;
  for (size_t i = 0; i < layout.requests.size(); ++i) {
    const ScheduledRequest& request = layout.requests[i];
    batch_->SetDrafts(request.slot, {});
    if (!WasSampled(request, samples.requests[i])) continue;
    if (policy_) policy_->Learn(Index(request.slot), ProposalOf(request.slot), Emitted(request));
    Propose(request.slot);
    const int32_t num_drafts =
        model_ ? MostDrafts(request.slot) : static_cast<int32_t>(ProposalOf(request.slot).size());
    candidates_.push_back({.slot = Index(request.slot),
                           .num_drafts = num_drafts,
                           .num_behind = model_ ? NumBehind(request) : 0,
                           .num_taken = num_drafts});
  }
  if (policy_) policy_->Choose(candidates_);
  if (model_) ProposeWithModel(layout, samples);
  auto candidate = candidates_.begin();
  for (size_t i = 0; i < layout.requests.size(); ++i) {
    const ScheduledRequest& request = layout.requests[i];
    if (!WasSampled(request, samples.requests[i])) continue;
    const auto num_proposed = static_cast<int32_t>(ProposalOf(request.slot).size());
    Report(request,
           {.request_idx = static_cast<int32_t>(i),
            .num_verified = request.num_draft_tokens - samples.requests[i].num_refused_drafts,
            .num_accepted = samples.requests[i].num_tokens - 1,
            .num_proposed = std::min(candidate++->num_taken, num_proposed)},
           result);
  }
}

std::span<const TokenId> StepDrafts::Emitted(const ScheduledRequest& request) const {
  const int32_t num_before =
      request.num_computed_tokens + request.num_scheduled_tokens - request.num_draft_tokens;
  return batch_->token_ids(request.slot).subspan(static_cast<size_t>(num_before));
}

int32_t StepDrafts::NumBehind(const ScheduledRequest& request) const {
  return model_->NumBehind(request.slot, static_cast<int32_t>(Emitted(request).size()));
}

int32_t StepDrafts::MostDrafts(RequestSlot slot) const {
  // A token is sampled after the last draft.
  const int32_t num_tokens = batch_->row(slot).num_tokens;
  const int32_t room = batch_->limits().max_model_len - num_tokens - 1;
  const int32_t most = std::clamp(room, 0, num_wanted_);
  if (!model_) return most;
  // Its last token is there; guesses from tokens cost nothing then.
  if (num_tokens >= max_tokens_[static_cast<size_t>(Index(slot))]) return 0;
  return std::min(most, model_->RoomFor(slot));
}

void StepDrafts::Propose(RequestSlot slot) {
  ProposalOf(slot).clear();
  if (!drafter_) return;
  drafter_->Propose(Index(slot), batch_->token_ids(slot), MostDrafts(slot), &ProposalOf(slot));
}

// Prompts are taken in chunk by chunk, unless drafts have mostly been wrong. So are the tokens of
// requests that get no drafts, where what the drafter reads of them will not be there later.
void StepDrafts::ProposeWithModel(const StepLayout& layout, const StepSamples& samples) {
  wishes_.clear();
  const bool takes_in_prompts = !policy_ || policy_->MayDraft();
  const bool takes_in_all = takes_in_prompts && model_->reads_states();
  auto candidate = candidates_.begin();
  for (size_t i = 0; i < layout.requests.size(); ++i) {
    const ScheduledRequest& request = layout.requests[i];
    PassDrafter::Wish wish = {
        .slot = request.slot,
        .num_tokens = request.num_computed_tokens + request.num_scheduled_tokens,
        .begin = request.num_computed_tokens,
        .count = request.num_scheduled_tokens,
        .first_row = layout.query_start[i]};
    if (WasSampled(request, samples.requests[i])) {
      wish.num_tokens = batch_->row(request.slot).num_tokens;
      wish.num_drafts = candidate++->num_taken;
      wish.drafts = &ProposalOf(request.slot);
      if (wish.num_drafts > 0 || takes_in_all) wishes_.push_back(wish);
    } else if (takes_in_prompts && !request.needs_sample) {
      wishes_.push_back(wish);
    }
  }
  model_->Propose(wishes_);
}

void StepDrafts::Report(const ScheduledRequest& request, DraftResult drafted, ModelOutput* result) {
  const std::span<const TokenId> proposed(ProposalOf(request.slot).data(),
                                          static_cast<size_t>(drafted.num_proposed));
  batch_->SetDrafts(request.slot, proposed);
  if (drafted.num_verified == 0 && proposed.empty()) return;
  std::vector<TokenId>& ids = result->draft_token_ids;
  drafted.begin = static_cast<int32_t>(ids.size());
  const auto accepted = Emitted(request).first(static_cast<size_t>(drafted.num_accepted));
  ids.insert(ids.end(), accepted.begin(), accepted.end());
  ids.insert(ids.end(), proposed.begin(), proposed.end());
  result->drafts.push_back(drafted);
}

void StepDrafts::Observe(const StepLayout& layout, double seconds) {
  if (!policy_ || layout.requests.empty()) return;
  int32_t num_drafts = 0;
  for (const ScheduledRequest& request : layout.requests) {
    if (request.num_scheduled_tokens - request.num_draft_tokens != 1) return;
    num_drafts += request.num_draft_tokens;
  }
  policy_->cost().Observe(static_cast<int32_t>(layout.requests.size()), num_drafts, seconds);
}

}  // namespace tandem
