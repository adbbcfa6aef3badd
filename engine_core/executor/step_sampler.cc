#include "engine_core/executor/step_sampler.h"

#include <algorithm>
#include <utility>

#include "common/token_mask.h"
#include "engine_core/sampling/row_math.h"

namespace tandem {
namespace {

// Room for the logprobs of one more sampled token.
LogprobsRow AddLogprobs(int32_t num_logprobs, std::optional<wire::LogprobsRows>* logprobs) {
  wire::LogprobsRows& out = logprobs->has_value() ? **logprobs : logprobs->emplace();
  out.num_columns = num_logprobs + 1;
  const auto columns = static_cast<size_t>(out.num_columns);
  const size_t begin = static_cast<size_t>(out.num_rows++) * columns;
  out.token_ids.resize(begin + columns);
  out.logprobs.resize(begin + columns);
  out.ranks.resize(static_cast<size_t>(out.num_rows));
  return {std::span(out.token_ids).subspan(begin), std::span(out.logprobs).subspan(begin),
          &out.ranks.back()};
}

void CopyLogprobs(std::span<const TokenLogprob> from, int32_t rank, const LogprobsRow& out) {
  for (size_t i = 0; i < from.size(); ++i) {
    out.token_ids[i] = from[i].token_id;
    out.logprobs[i] = from[i].logprob;
  }
  *out.rank = rank;
}

}  // namespace

StepSampler::StepSampler(Backend* backend, InputBatch* batch)
    : backend_(backend),
      batch_(batch),
      scratch_(std::make_unique<ScratchPool>(static_cast<size_t>(backend->num_threads()),
                                             static_cast<size_t>(batch->limits().vocab_size))) {}

StatusOr<StepSampler> StepSampler::Create(Backend* backend, int64_t max_logits_rows,
                                          int64_t max_rows, InputBatch* batch) {
  const ExecutorLimits& limits = batch->limits();
  StepSampler sampler(backend, batch);
  ASSIGN_OR_RETURN(sampler.logits_, SharedTensor::Create(&backend->device(), DType::kF32,
                                                         {max_logits_rows, limits.vocab_size}));
  ASSIGN_OR_RETURN(sampler.device_, backend->MakeSampler({.num_slots = limits.max_num_seqs,
                                                          .vocab_size = limits.vocab_size,
                                                          .max_logits_rows = max_logits_rows,
                                                          .max_rows = max_rows,
                                                          .max_tokens = limits.max_model_len}));
  // A device's steps share one: the copy of the next step's masks waits for the ops before it.
  const size_t num_mask_sets = backend->device().memory_is_host() ? limits.max_steps_in_flight : 1;
  const int64_t max_masks =
      int64_t{limits.max_num_seqs} * (1 + limits.drafts.num_speculative_tokens);
  while (sampler.masks_.size() < num_mask_sets) {
    ASSIGN_OR_RETURN(TokenMasks masks,
                     TokenMasks::Create(&backend->device(), max_masks, limits.vocab_size));
    sampler.masks_.push_back(std::move(masks));
  }
  CHECK((sampler.device_ == nullptr) == backend->device().memory_is_host());
  sampler.takes_drafts_ = limits.drafts.num_speculative_tokens > 0;
  sampler.host_runs_.reserve(static_cast<size_t>(max_logits_rows));
  return sampler;
}

// ---- before the step's ops ----

void StepSampler::Admit(RequestSlot slot) {
  const InputBatch::Row& row = batch_->row(slot);
  if (!row.samples_on_device) return;
  device_->Admit(Index(slot), row.sampling, batch_->token_ids(slot), row.num_prompt_tokens);
}

void StepSampler::Begin(const StepLayout& layout, StepSamples* samples) {
  samples->mask_set = next_mask_set_;
  next_mask_set_ = (next_mask_set_ + 1) % masks_.size();
  samples->requests.resize(layout.requests.size());
  for (size_t i = 0; i < layout.requests.size(); ++i) {
    const ScheduledRequest& request = layout.requests[i];
    const InputBatch::Row& row = batch_->row(request.slot);
    const bool ends_prompt =
        request.needs_sample && request.num_computed_tokens < row.num_prompt_tokens;
    samples->requests[i] = {
        .result = {.status = row.status, .token_id = 0, .num_nans = 0},
        .logprobs = std::nullopt,
        .num_tokens = 0,
        .is_settled = false,
        .is_known = request.needs_sample && row.status.ok() &&
                    (verifies_on_device() || !row.samples_on_device),
        .has_prompt_logprobs = ends_prompt && (row.prompt_logprobs || row.prompt_scores),
        .forced = {},
        .num_refused_drafts = 0};
  }
  samples->prompt_nans.assign(layout.logits_rows.size(), 0);
}

void StepSampler::TakeMasks(const SchedulerOutput& step, StepSamples* samples) {
  if (step.finish_token_masks) step.finish_token_masks();
  masks_[samples->mask_set].Send(step.token_masks);
  size_t place = 0;  // among the masks of a request
  for (size_t i = 0; i < step.token_masks.size(); ++i) {
    const TokenMask& mask = step.token_masks[i];
    const bool is_first = i == 0 || step.token_masks[i - 1].request_idx != mask.request_idx;
    place = is_first ? 0 : place + 1;
    const auto request_idx = static_cast<size_t>(mask.request_idx);
    StepSamples::Request& sampled = samples->requests[request_idx];
    const std::span<const TokenId> forced = step.Forced(mask);
    if (is_first) sampled.forced.assign(forced.begin(), forced.end());
    const std::span<const TokenId> drafts = step.Drafts(step.requests[request_idx]);
    if (place >= drafts.size() || IsAllowed(mask.words, drafts[place])) continue;
    const auto num_refused = static_cast<int32_t>(drafts.size() - place);
    sampled.num_refused_drafts = std::max(sampled.num_refused_drafts, num_refused);
  }
}

void StepSampler::FillRows(const StepLayout& layout, const Tensor& sampling_rows) const {
  auto* out = reinterpret_cast<SamplingRow*>(sampling_rows.Data<int32_t>());
  int32_t num_drafts = 0;
  for (size_t i = 0; i < layout.logits_rows.size(); ++i) {
    num_drafts = layout.FollowsDraft(i) ? num_drafts + 1 : 0;
    *out++ = layout.logits_rows[i].on_device ? SamplingRowOf(layout, i, num_drafts) : SamplingRow{};
  }
  std::fill_n(out, layout.num_padding_logits_rows, SamplingRow{});
}

SamplingRow StepSampler::SamplingRowOf(const StepLayout& layout, size_t row_idx,
                                       int32_t num_drafts) const {
  const LogitsRow& logits_row = layout.logits_rows[row_idx];
  const RequestSlot slot = layout.requests[static_cast<size_t>(logits_row.request_idx)].slot;
  const InputBatch::Row& row = batch_->row(slot);
  SamplingRow sampling_row = {.slot = Index(slot),
                              .position = row.num_tokens + num_drafts,
                              .num_outputs = row.num_tokens + num_drafts - row.num_prompt_tokens,
                              .mask_row = logits_row.mask_idx};
  if (num_drafts > 0) {
    const auto draft = static_cast<size_t>(sampling_row.position) - 1;
    sampling_row.draft_token_id = batch_->input_ids(slot)[draft];
  }
  if (logits_row.prompt_row >= 0) {
    const auto next = static_cast<size_t>(logits_row.prompt_row) + 1;
    sampling_row.scored_token_id = batch_->token_ids(slot)[next];
  }
  return sampling_row;
}

// ---- ops ----

void StepSampler::FillSampledInputs(const Tensor& token_ids) {
  if (device_ != nullptr) device_->FillSampledTokens(token_ids);
}

void StepSampler::SampleOnDevice(const Tensor& logits, const Tensor& sampling_rows, int64_t first) {
  if (device_ != nullptr) device_->Sample(logits, sampling_rows, masks_[0].device(), first);
}

// ---- after them ----

void StepSampler::StartFetch(const StepLayout& layout) {
  if (!layout.has_device_rows) return;
  device_->StartFetch(static_cast<int64_t>(layout.logits_rows.size()), layout.max_device_logprobs);
}

// A request that will fail may run once more before its failure is known: with any token.
void StepSampler::AppendUnknownTokens(const StepLayout& layout, const StepSamples& samples) {
  for (size_t i = 0; i < layout.requests.size(); ++i) {
    const ScheduledRequest& request = layout.requests[i];
    if (!request.needs_sample) continue;
    const InputBatch::Row& row = batch_->row(request.slot);
    if (row.samples_on_device && !verifies_on_device()) {
      batch_->AppendUnknownToken(request.slot);
      AppendForced(request.slot, samples.requests[i]);
    }
    if (!row.status.ok()) batch_->AppendToken(request.slot, 0);
  }
}

void StepSampler::AppendForced(RequestSlot slot, const StepSamples::Request& sampled) {
  for (const TokenId token : sampled.forced) batch_->AppendToken(slot, token);
}

void StepSampler::SampleOnHost(const StepLayout& layout, int64_t first, StepSamples* samples) {
  const int64_t end =
      std::min(first + max_logits_rows(), static_cast<int64_t>(layout.logits_rows.size()));
  host_runs_.clear();
  host_masks_ = &masks_[samples->mask_set];
  for (int64_t row_idx = first; row_idx < end; ++row_idx) {
    if (layout.logits_rows[static_cast<size_t>(row_idx)].on_device) continue;
    AddToRuns(layout, row_idx);
    logits_.Fetch(1, row_idx - first);
  }
  const auto num_runs = static_cast<int64_t>(host_runs_.size());
  backend_->ParallelFor(num_runs, 1, [&](int64_t begin, int64_t range_end) {
    const size_t lane = scratch_->Claim();
    for (int64_t i = begin; i < range_end; ++i) {
      const Run& run = host_runs_[static_cast<size_t>(i)];
      for (int64_t row_idx = run.first; row_idx < run.first + run.count; ++row_idx) {
        const std::span<float> logits(logits_.host().Row<float>(row_idx - first),
                                      static_cast<size_t>(batch_->limits().vocab_size));
        SampleRow(layout, static_cast<size_t>(row_idx), logits, samples, (*scratch_)[lane]);
      }
    }
    scratch_->Release(lane);
  });
}

void StepSampler::AddToRuns(const StepLayout& layout, int64_t row_idx) {
  const LogitsRow& row = layout.logits_rows[static_cast<size_t>(row_idx)];
  if (!host_runs_.empty() && row.prompt_row < 0) {
    Run& last = host_runs_.back();
    const LogitsRow& before = layout.logits_rows[static_cast<size_t>(last.first)];
    if (before.prompt_row < 0 && before.request_idx == row.request_idx) {
      ++last.count;
      return;
    }
  }
  host_runs_.push_back({row_idx, 1});
}

// On a thread of the compute pool, which may run another row of the request at the same time: only
// the row that samples writes what they share.
void StepSampler::SampleRow(const StepLayout& layout, size_t row_idx, std::span<float> logits,
                            StepSamples* samples, SamplerScratch* scratch) {
  const LogitsRow& row = layout.logits_rows[row_idx];
  const auto request_idx = static_cast<size_t>(row.request_idx);
  const RequestSlot slot = layout.requests[request_idx].slot;
  if (row.prompt_row < 0) {
    return SampleNext(slot, row, logits, &samples->requests[request_idx], scratch);
  }
  samples->prompt_nans[row_idx] = FindMax(logits).num_nans;
  if (samples->prompt_nans[row_idx] > 0) return;
  InputBatch::Row& request = batch_->row(slot);
  const bool normalized = IsNormalized(request.sampling.logprobs_mode);
  if (request.prompt_scores) request.prompt_scores->Fill(row.prompt_row, logits, normalized);
  if (!request.prompt_logprobs) return;
  const TokenId next = batch_->prompt_ids(slot)[static_cast<size_t>(row.prompt_row) + 1];
  FillTopLogprobs(logits, normalized, next, PromptLogprobs(slot, row.prompt_row), &scratch->heap);
}

// Samples the request's next token, unless the one before it was not the draft.
void StepSampler::SampleNext(RequestSlot slot, const LogitsRow& row, std::span<float> logits,
                             StepSamples::Request* sampled, SamplerScratch* scratch) {
  if (sampled->is_settled) return;
  TakeToken(slot, SampleToken(slot, row, logits, sampled, scratch), sampled);
}

void StepSampler::TakeToken(RequestSlot slot, SampleResult result, StepSamples::Request* sampled) {
  sampled->is_settled = true;
  if (!result.status.ok() && sampled->num_tokens > 0) {
    // The tokens so far are good. This position runs again in the next step, and fails there.
    return;
  }
  sampled->result = std::move(result);
  if (!sampled->result.status.ok()) return;
  ++sampled->num_tokens;
  sampled->is_settled = !batch_->AppendToken(slot, sampled->result.token_id);
}

SampleResult StepSampler::SampleToken(RequestSlot slot, const LogitsRow& logits_row,
                                      std::span<float> logits, StepSamples::Request* sampled,
                                      SamplerScratch* scratch) {
  const InputBatch::Row& row = batch_->row(slot);
  SampleInput input;
  input.logits = logits;
  input.config = &row.sampling;
  input.counts = &row.counts;
  input.output_ids = batch_->output_ids(slot);
  const size_t place = input.output_ids.size();
  if (place < row.given_outputs.size()) input.given_token = row.given_outputs[place];
  if (logits_row.mask_idx >= 0) input.token_mask = host_masks_->host_mask(logits_row.mask_idx);
  input.position = row.num_tokens;
  if (row.sampling.num_logprobs >= 0) {
    input.logprobs = AddLogprobs(row.sampling.num_logprobs, &sampled->logprobs);
  }
  return tandem::SampleToken(input, scratch);
}

void StepSampler::TakeFetched(const StepLayout& layout, StepSamples* samples) {
  if (!layout.has_device_rows) return;
  device_->TakeFetched();
  for (size_t i = 0; i < layout.logits_rows.size(); ++i) {
    if (layout.logits_rows[i].on_device) TakeRow(layout, i, samples);
  }
}

void StepSampler::TakeRow(const StepLayout& layout, size_t row_idx, StepSamples* samples) {
  const LogitsRow& row = layout.logits_rows[row_idx];
  const auto number = static_cast<int64_t>(row_idx);
  const SampledToken& token = device_->sampled(number);
  if (row.prompt_row >= 0) {
    samples->prompt_nans[row_idx] = token.num_nans;
    if (token.num_nans > 0) return;
    const RequestSlot slot = layout.requests[static_cast<size_t>(row.request_idx)].slot;
    CopyLogprobs(device_->logprobs(number), token.rank, PromptLogprobs(slot, row.prompt_row));
    return;
  }
  StepSamples::Request& sampled = samples->requests[static_cast<size_t>(row.request_idx)];
  if (sampled.is_settled) return;  // it came after a draft that was not right
  SampleResult result = {
      .status = OkStatus(), .token_id = token.token_id, .num_nans = token.num_nans};
  if (token.num_nans > 0) {
    result.status = NotFiniteError(token.num_nans);
  } else if (token.token_id < 0) {
    result.status = NoTokenLeftError();
  } else if (token.num_logprobs >= 0) {
    CopyLogprobs(device_->logprobs(number), token.rank,
                 AddLogprobs(token.num_logprobs, &sampled.logprobs));
  }
  if (!verifies_on_device()) {
    sampled.result = std::move(result);
    return;
  }
  const RequestSlot slot = layout.requests[static_cast<size_t>(row.request_idx)].slot;
  TakeToken(slot, std::move(result), &sampled);
}

// A row of the batch may belong to another request by now, unless ModelRunner::MustFinishFirst kept
// it.
void StepSampler::Fold(const StepLayout& layout, StepSamples* samples, ModelOutput* result) {
  size_t row_idx = 0;
  for (size_t i = 0; i < layout.requests.size(); ++i) {
    const ScheduledRequest& request = layout.requests[i];
    StepSamples::Request& sampled = samples->requests[i];
    RequestResult extra;
    extra.request_idx = static_cast<int32_t>(i);
    int64_t prompt_nans = 0;
    for (; row_idx < layout.logits_rows.size(); ++row_idx) {
      if (layout.logits_rows[row_idx].request_idx != extra.request_idx) break;
      prompt_nans += samples->prompt_nans[row_idx];
    }
    if (prompt_nans > 0) {
      sampled.result = {
          .status = NotFiniteError(prompt_nans), .token_id = 0, .num_nans = prompt_nans};
    }
    const TokenId token = FoldRequest(request, &sampled, &extra);
    if (sampled.is_known) {
      // A request that has failed may run once more, with any token.
      if (sampled.num_tokens == 0) batch_->AppendToken(request.slot, 0);
      AppendForced(request.slot, sampled);
    }
    result->sampled_token_ids.push_back(token);
    const bool has_extra = !extra.status.ok() || extra.num_nans_in_logits > 0 || extra.logprobs ||
                           extra.prompt_logprobs || extra.prompt_scores;
    if (has_extra) result->results.push_back(std::move(extra));
  }
}

// Returns the request's token and writes the rest of its result to *extra.
TokenId StepSampler::FoldRequest(const ScheduledRequest& request, StepSamples::Request* sampled,
                                 RequestResult* extra) {
  if (!sampled->result.status.ok()) {
    extra->status = sampled->result.status;
    extra->num_nans_in_logits = static_cast<int32_t>(sampled->result.num_nans);
    return kNoToken;
  }
  if (!request.needs_sample) return kNoToken;
  extra->logprobs = std::move(sampled->logprobs);
  if (sampled->has_prompt_logprobs) {
    InputBatch::Row& row = batch_->row(request.slot);
    extra->prompt_logprobs = std::exchange(row.prompt_logprobs, {});
    if (row.prompt_scores) extra->prompt_scores = row.prompt_scores->Packed();
    row.prompt_scores.reset();
  }
  return sampled->result.token_id;
}

LogprobsRow StepSampler::PromptLogprobs(RequestSlot slot, int32_t prompt_row) {
  wire::LogprobsRows& out = *batch_->row(slot).prompt_logprobs;
  const auto columns = static_cast<size_t>(out.num_columns);
  const auto row = static_cast<size_t>(prompt_row);
  return {std::span(out.token_ids).subspan(row * columns, columns),
          std::span(out.logprobs).subspan(row * columns, columns), &out.ranks[row]};
}

}  // namespace tandem
