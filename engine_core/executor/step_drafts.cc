#include "engine_core/executor/step_drafts.h"

#include <algorithm>
#include <utility>

#include "engine_core/speculation/ngram_drafter.h"
#include "engine_core/speculation/suffix_drafter.h"

namespace tandem {
namespace {

bool WasSampled(const ScheduledRequest& request, const StepSamples::Request& sampled) {
  return request.needs_sample && sampled.result.status.ok();
}

std::unique_ptr<Drafter> MakeDrafter(const SpeculativeConfig& config, int32_t num_slots,
                                     uint64_t seed) {
  if (config.method == DraftMethod::kSuffix) {
    return std::make_unique<SuffixDrafter>(num_slots, config.suffix);
  }
  return std::make_unique<NgramDrafter>(num_slots, config.prompt_lookup_min,
                                        config.prompt_lookup_max, seed);
}

}  // namespace

StepDrafts::StepDrafts(const SpeculativeConfig& config, InputBatch* batch, uint64_t seed)
    : batch_(batch), drafter_(MakeDrafter(config, batch->limits().max_num_seqs, seed)) {
  const auto num_slots = static_cast<size_t>(batch->limits().max_num_seqs);
  proposals_.resize(num_slots);
  for (std::vector<TokenId>& proposal : proposals_) {
    proposal.reserve(static_cast<size_t>(config.num_speculative_tokens));
  }
  candidates_.reserve(num_slots);
  if (config.adaptive) policy_.emplace(batch->limits().max_num_seqs, StepCost());
}

void StepDrafts::SetCost(StepCost cost) {
  if (policy_) policy_->cost() = std::move(cost);
}

// ---- before a step is laid out ----

void StepDrafts::Remove(RequestSlot slot) { drafter_->End(Index(slot)); }

void StepDrafts::Admit(RequestSlot slot) {
  drafter_->Begin(Index(slot), batch_->row(slot).num_tokens);
  ProposalOf(slot).clear();
  if (policy_) policy_->Begin(Index(slot));
}

void StepDrafts::Place(const SchedulerOutput& step) {
  num_wanted_ = step.num_drafts_wanted;
  for (const ScheduledRequest& request : step.requests) {
    batch_->PlaceDrafts(request.slot, step.Drafts(request));
  }
}

// ---- after it was sampled and folded ----

void StepDrafts::Fold(const StepLayout& layout, const StepSamples& samples, ModelOutput* result) {
  candidates_.clear();
  for (size_t i = 0; i < layout.requests.size(); ++i) {
    const ScheduledRequest& request = layout.requests[i];
    batch_->SetDrafts(request.slot, {});
    if (!WasSampled(request, samples.requests[i])) continue;
    if (policy_) policy_->Learn(Index(request.slot), ProposalOf(request.slot), Emitted(request));
    Propose(request.slot);
    const auto num_proposed = static_cast<int32_t>(ProposalOf(request.slot).size());
    candidates_.push_back({Index(request.slot), num_proposed, num_proposed});
  }
  if (policy_) policy_->Choose(candidates_);
  auto candidate = candidates_.begin();
  for (size_t i = 0; i < layout.requests.size(); ++i) {
    const ScheduledRequest& request = layout.requests[i];
    if (!WasSampled(request, samples.requests[i])) continue;
    Report(request,
           {.request_idx = static_cast<int32_t>(i),
            .num_verified = request.num_draft_tokens,
            .num_accepted = samples.requests[i].num_tokens - 1,
            .num_proposed = candidate++->num_taken},
           result);
  }
}

std::span<const TokenId> StepDrafts::Emitted(const ScheduledRequest& request) const {
  const int32_t num_before =
      request.num_computed_tokens + request.num_scheduled_tokens - request.num_draft_tokens;
  return batch_->token_ids(request.slot).subspan(static_cast<size_t>(num_before));
}

void StepDrafts::Propose(RequestSlot slot) {
  const std::span<const TokenId> tokens = batch_->token_ids(slot);
  std::vector<TokenId>& proposal = ProposalOf(slot);
  proposal.clear();
  // A token is sampled after the last draft.
  const int64_t room = int64_t{batch_->limits().max_model_len} - std::ssize(tokens) - 1;
  const int64_t most = std::clamp<int64_t>(room, 0, num_wanted_);
  drafter_->Propose(Index(slot), tokens, static_cast<int32_t>(most), &proposal);
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
