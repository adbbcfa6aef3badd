// From a step's logits to its result: the part of ModelRunner that samples.

#include <algorithm>
#include <utility>

#include "engine_core/executor/model_runner.h"
#include "engine_core/sampling/row_math.h"

namespace tandem {
namespace {

// Room for the logprobs of a drawn token.
LogprobsRow MakeLogprobs(int32_t num_logprobs, std::optional<wire::LogprobsRows>* logprobs) {
  wire::LogprobsRows& out = logprobs->emplace();
  out.num_rows = 1;
  out.num_columns = num_logprobs + 1;
  out.token_ids.resize(static_cast<size_t>(out.num_columns));
  out.logprobs.resize(static_cast<size_t>(out.num_columns));
  out.ranks.resize(1);
  return {out.token_ids, out.logprobs, out.ranks.data()};
}

void CopyLogprobs(std::span<const TokenLogprob> from, int32_t rank, const LogprobsRow& out) {
  for (size_t i = 0; i < from.size(); ++i) {
    out.token_ids[i] = from[i].token_id;
    out.logprobs[i] = from[i].logprob;
  }
  *out.rank = rank;
}

}  // namespace

void ModelRunner::FetchDrawn() {
  clock_.End(&step_->times);
  if (!step_->has_device_rows) return;
  sampler_->StartFetch(static_cast<int64_t>(step_->logits_rows.size()), step_->max_logprobs);
}

// Tokens that the next step can name without knowing them. A request that is going to fail may be
// run once more, before anybody knows: with any token.
void ModelRunner::AppendTokens() {
  for (const ScheduledRequest& request : step_->requests) {
    if (!request.needs_sample) continue;
    const InputBatch::Row& row = batch_.row(request.slot);
    if (row.draws_on_device) batch_.AppendDrawnToken(request.slot);
    if (!row.status.ok()) batch_.AppendToken(request.slot, 0);
  }
}

void ModelRunner::FillOnHost(int64_t begin) {
  host_rows_.clear();
  const auto total = static_cast<int64_t>(step_->logits_rows.size());
  const std::span<LogitsRow> chunk =
      std::span(step_->logits_rows)
          .subspan(static_cast<size_t>(begin),
                   static_cast<size_t>(std::min(max_logits_rows_, total - begin)));
  for (size_t i = 0; i < chunk.size(); ++i) {
    if (chunk[i].on_device) continue;
    host_rows_.push_back(static_cast<int64_t>(i));
    logits_.Fetch(1, static_cast<int64_t>(i));
  }
  const auto num_rows = static_cast<int64_t>(host_rows_.size());
  backend_->ParallelFor(num_rows, 1, [&](int64_t first, int64_t last) {
    const size_t lane = scratch_.Claim();
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = host_rows_[static_cast<size_t>(i)];
      const std::span<float> logits(logits_.host().Row<float>(row),
                                    static_cast<size_t>(limits_.vocab_size));
      FillRow(logits, &chunk[static_cast<size_t>(row)], scratch_[lane]);
    }
    scratch_.Release(lane);
  });
}

// What the device has drawn and told, in one copy.
void ModelRunner::TakeDrawn(StepInFlight* step) {
  sampler_->TakeFetched();
  for (size_t i = 0; i < step->logits_rows.size(); ++i) {
    LogitsRow& row = step->logits_rows[i];
    if (!row.on_device) continue;
    const auto number = static_cast<int64_t>(i);
    const DrawnToken& told = sampler_->drawn(number);
    const auto request_idx = static_cast<size_t>(row.request_idx);
    const RequestSlot slot = step->requests[request_idx].slot;
    Drawn& drawn = step->drawn[request_idx];
    if (row.prompt_row >= 0) {
      row.num_nans = told.num_nans;
      if (row.num_nans > 0) continue;
      CopyLogprobs(sampler_->logprobs(number), told.rank, PromptLogprobs(slot, row.prompt_row));
      continue;
    }
    drawn.result = {.status = OkStatus(), .token_id = told.token_id, .num_nans = told.num_nans};
    if (told.num_nans > 0) {
      drawn.result.status = NotFiniteError(told.num_nans);
    } else if (told.token_id < 0) {
      drawn.result.status = NoTokenLeftError();
    } else if (told.num_logprobs >= 0) {
      CopyLogprobs(sampler_->logprobs(number), told.rank,
                   MakeLogprobs(told.num_logprobs, &drawn.logprobs));
    }
  }
}

// On a thread of the compute pool: touches what belongs to this row only.
void ModelRunner::FillRow(std::span<float> logits, LogitsRow* row, SamplerScratch* scratch) {
  const auto request_idx = static_cast<size_t>(row->request_idx);
  const RequestSlot slot = step_->requests[request_idx].slot;
  if (row->prompt_row < 0) return Draw(slot, logits, &step_->drawn[request_idx], scratch);
  row->num_nans = FindMax(logits).num_nans;
  if (row->num_nans > 0) return;
  const TokenId next = batch_.token_ids(slot)[static_cast<size_t>(row->prompt_row) + 1];
  FillTopLogprobs(logits, IsNormalized(batch_.row(slot).sampling.logprobs_mode), next,
                  PromptLogprobs(slot, row->prompt_row), &scratch->heap);
}

LogprobsRow ModelRunner::PromptLogprobs(RequestSlot slot, int32_t prompt_row) {
  wire::LogprobsRows& out = batch_.row(slot).prompt_logprobs;
  const auto columns = static_cast<size_t>(out.num_columns);
  const auto row = static_cast<size_t>(prompt_row);
  return {std::span(out.token_ids).subspan(row * columns, columns),
          std::span(out.logprobs).subspan(row * columns, columns), &out.ranks[row]};
}

void ModelRunner::Draw(RequestSlot slot, std::span<float> logits, Drawn* drawn,
                       SamplerScratch* scratch) {
  const InputBatch::Row& row = batch_.row(slot);
  SampleInput input;
  input.logits = logits;
  input.config = &row.sampling;
  input.counts = &row.counts;
  input.output_ids = batch_.output_ids(slot);
  input.position = row.num_tokens;
  if (row.sampling.num_logprobs >= 0) {
    input.logprobs = MakeLogprobs(row.sampling.num_logprobs, &drawn->logprobs);
  }
  drawn->result = SampleToken(input, scratch);
}

// Tokens into the result, and into the rows where the host has drawn them; what goes beyond a token
// into RequestResults. A row may be another request's by now, unless IsWaitedFor has kept it.
void ModelRunner::FoldBack(StepInFlight* step) {
  auto logits_row = step->logits_rows.begin();  // in the order of the requests
  for (size_t i = 0; i < step->requests.size(); ++i) {
    const ScheduledRequest& request = step->requests[i];
    Drawn& drawn = step->drawn[i];
    RequestResult extra;
    extra.request_idx = static_cast<int32_t>(i);
    TokenId token = kNoToken;
    int64_t prompt_nans = 0;
    for (; logits_row != step->logits_rows.end() && logits_row->request_idx == extra.request_idx;
         ++logits_row) {
      prompt_nans += logits_row->num_nans;
    }
    if (prompt_nans > 0) {
      extra.status = NotFiniteError(prompt_nans);
      extra.num_nans_in_logits = static_cast<int32_t>(prompt_nans);
    } else if (!drawn.result.status.ok()) {
      extra.status = drawn.result.status;
      extra.num_nans_in_logits = static_cast<int32_t>(drawn.result.num_nans);
    } else if (request.needs_sample) {
      token = drawn.result.token_id;
      extra.logprobs = std::move(drawn.logprobs);
      if (drawn.has_prompt_logprobs) {
        InputBatch::Row& row = batch_.row(request.slot);
        extra.prompt_logprobs = std::move(row.prompt_logprobs);
        row.num_prompt_logprobs = -1;
      }
    }
    if (drawn.on_host) batch_.AppendToken(request.slot, std::max(token, TokenId{0}));
    step->result->sampled_token_ids.push_back(token);
    const bool has_extra = !extra.status.ok() || extra.num_nans_in_logits > 0 || extra.logprobs ||
                           extra.prompt_logprobs;
    if (has_extra) step->result->results.push_back(std::move(extra));
  }
}

}  // namespace tandem
