// From a step's logits to its result: the part of ModelRunner that draws tokens.

#include <algorithm>
#include <utility>

#include "engine_core/executor/model_runner.h"
#include "engine_core/sampling/row_math.h"

namespace tandem {

std::span<ModelRunner::LogitsRow> ModelRunner::ChunkFrom(Step* step, int64_t begin) const {
  const auto total = static_cast<int64_t>(step->logits_rows.size());
  return std::span(step->logits_rows)
      .subspan(static_cast<size_t>(begin),
               static_cast<size_t>(std::min(max_logits_rows_, total - begin)));
}

// And, after the last chunk, what was drawn on its way to the host.
void ModelRunner::DrawOnDevice(Step* step, int64_t begin) {
  draw_rows_.clear();
  const auto first = static_cast<int64_t>(step->drawn_request_idx.size());
  const std::span<LogitsRow> chunk = ChunkFrom(step, begin);
  const auto count = static_cast<int64_t>(chunk.size());
  for (int64_t i = 0; i < count; ++i) {
    LogitsRow& logits_row = chunk[static_cast<size_t>(i)];
    if (!logits_row.on_device) continue;
    const RequestSlot slot = step->requests[static_cast<size_t>(logits_row.request_idx)].slot;
    const InputBatch::Row& row = batch_.row(slot);
    logits_row.position = row.num_tokens;
    draw_rows_.push_back({.logits_row = static_cast<int32_t>(i),
                          .slot = Index(slot),
                          .position = row.num_tokens,
                          .num_outputs = row.num_tokens - row.num_prompt_tokens});
    step->drawn_request_idx.push_back(logits_row.request_idx);
  }
  if (!draw_rows_.empty()) sampler_->Draw(logits_.device().Rows(0, count), draw_rows_, first);
  const auto num_drawn = static_cast<int64_t>(step->drawn_request_idx.size());
  const bool is_last = begin + count == static_cast<int64_t>(step->logits_rows.size());
  if (is_last && num_drawn > 0) sampler_->StartFetch(num_drawn);
}

// The step's tokens are on the device: here they stand as 0 until the host sees them.
void ModelRunner::AppendUnseenTokens() {
  for (const LogitsRow& row : step_->logits_rows) {
    const RequestSlot slot = step_->requests[static_cast<size_t>(row.request_idx)].slot;
    batch_.AppendToken(slot, TokenId{0});
    unseen_[static_cast<size_t>(Index(slot))] = row.position;
  }
}

void ModelRunner::FillOnHost(Step* step, int64_t begin) {
  host_rows_.clear();
  const std::span<LogitsRow> chunk = ChunkFrom(step, begin);
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
      FillRow(*step, logits, &chunk[static_cast<size_t>(row)], scratch_[lane]);
    }
    scratch_.Release(lane);
  });
}

void ModelRunner::TakeDrawn(const Step& step) {
  if (step.drawn_request_idx.empty()) return;
  sampler_->FinishFetch();
  for (size_t i = 0; i < step.drawn_request_idx.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    const auto request_idx = static_cast<size_t>(step.drawn_request_idx[i]);
    const DrawnToken& drawn = sampler_->drawn(number);
    drawn_[request_idx].logprobs.reset();
    SampleResult& result = drawn_[request_idx].result;
    result.status = OkStatus();
    result.token_id = drawn.token_id;
    result.num_nans = drawn.num_nans;
    if (drawn.num_nans > 0) {
      result.status = NotFiniteError(drawn.num_nans);
    } else if (drawn.token_id < 0) {
      result.status = NoTokenLeftError();
    }
    if (!result.status.ok() || drawn.num_logprobs < 0) continue;
    const LogprobsRow out = MakeLogprobs(drawn.num_logprobs, request_idx);
    std::ranges::copy(sampler_->logprob_token_ids(number), out.token_ids.begin());
    std::ranges::copy(sampler_->logprobs(number), out.logprobs.begin());
    *out.rank = drawn.rank;
  }
}

// On a thread of the compute pool: touches what belongs to this row only.
void ModelRunner::FillRow(const Step& step, std::span<float> logits, LogitsRow* row,
                          SamplerScratch* scratch) {
  const auto request_idx = static_cast<size_t>(row->request_idx);
  const RequestSlot slot = step.requests[request_idx].slot;
  if (row->prompt_row < 0) return Draw(slot, logits, request_idx, scratch);
  row->num_nans = FindMax(logits).num_nans;
  if (row->num_nans > 0) return;
  wire::LogprobsRows& out = batch_.row(slot).prompt_logprobs;
  const auto columns = static_cast<size_t>(out.num_columns);
  const auto prompt_row = static_cast<size_t>(row->prompt_row);
  const TokenId next = batch_.token_ids(slot)[prompt_row + 1];
  FillTopLogprobs(
      logits, IsNormalized(batch_.row(slot).sampling.logprobs_mode), next,
      {std::span(out.token_ids).subspan(prompt_row * columns, columns),
       std::span(out.logprobs).subspan(prompt_row * columns, columns), &out.ranks[prompt_row]},
      &scratch->heap);
}

void ModelRunner::Draw(RequestSlot slot, std::span<float> logits, size_t request_idx,
                       SamplerScratch* scratch) {
  const InputBatch::Row& row = batch_.row(slot);
  Drawn& drawn = drawn_[request_idx];
  SampleInput input;
  input.logits = logits;
  input.config = &row.sampling;
  input.counts = &row.counts;
  input.output_ids = batch_.output_ids(slot);
  input.position = row.num_tokens;
  drawn.logprobs.reset();
  if (row.sampling.num_logprobs >= 0) {
    input.logprobs = MakeLogprobs(row.sampling.num_logprobs, request_idx);
  }
  drawn.result = SampleToken(input, scratch);
}

LogprobsRow ModelRunner::MakeLogprobs(int32_t num_logprobs, size_t request_idx) {
  wire::LogprobsRows& out = drawn_[request_idx].logprobs.emplace();
  out.num_rows = 1;
  out.num_columns = num_logprobs + 1;
  out.token_ids.resize(static_cast<size_t>(out.num_columns));
  out.logprobs.resize(static_cast<size_t>(out.num_columns));
  out.ranks.resize(1);
  return {out.token_ids, out.logprobs, out.ranks.data()};
}

void ModelRunner::TakeToken(const Step& step, RequestSlot slot, int32_t position, TokenId token) {
  if (step.host_waits) return batch_.AppendToken(slot, token);
  batch_.SetToken(slot, position, token);
  int32_t& unseen = unseen_[static_cast<size_t>(Index(slot))];
  if (unseen == position) unseen = -1;
}

// Tokens into the rows and the result; what goes beyond a token into RequestResults.
void ModelRunner::FoldBack(Step* step) {
  auto logits_row = step->logits_rows.begin();  // in the order of the requests
  for (size_t i = 0; i < step->requests.size(); ++i) {
    const ScheduledRequest& request = step->requests[i];
    InputBatch::Row& row = batch_.row(request.slot);
    RequestResult extra;
    extra.request_idx = static_cast<int32_t>(i);
    TokenId token = kNoToken;
    int64_t prompt_nans = 0;
    int32_t position = 0;
    for (; logits_row != step->logits_rows.end() && logits_row->request_idx == extra.request_idx;
         ++logits_row) {
      prompt_nans += logits_row->num_nans;
      position = logits_row->position;
    }
    if (prompt_nans > 0) {
      extra.status = NotFiniteError(prompt_nans);
      extra.num_nans_in_logits = static_cast<int32_t>(prompt_nans);
    } else if (!row.status.ok()) {
      extra.status = row.status;
    } else if (request.needs_sample) {
      Drawn& drawn = drawn_[i];
      extra.status = drawn.result.status;
      extra.num_nans_in_logits = static_cast<int32_t>(drawn.result.num_nans);
      if (extra.status.ok()) {
        token = drawn.result.token_id;
        extra.logprobs = std::move(drawn.logprobs);
        if (row.num_prompt_logprobs >= 0) extra.prompt_logprobs = std::move(row.prompt_logprobs);
        row.num_prompt_logprobs = -1;
      }
    }
    // A request that failed may be run once more, before anybody knows: with any token.
    if (request.needs_sample) {
      TakeToken(*step, request.slot, position, std::max(token, TokenId{0}));
    }
    step->result->sampled_token_ids.push_back(token);
    const bool has_extra = !extra.status.ok() || extra.num_nans_in_logits > 0 || extra.logprobs ||
                           extra.prompt_logprobs;
    if (has_extra) step->result->results.push_back(std::move(extra));
  }
}

}  // namespace tandem
