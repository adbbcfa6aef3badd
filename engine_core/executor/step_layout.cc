#include "engine_core/executor/step_layout.h"

#include <algorithm>

namespace tandem {

void StepLayout::Reserve(int64_t max_requests) {
  const auto size = static_cast<size_t>(max_requests);
  requests.reserve(size);
  logits_rows.reserve(size);
  query_start.reserve(size + 1);
  context_len.reserve(size);
  num_drafts.reserve(size);
  adapter_of_request.reserve(size);
}

void StepLayout::Clear() {
  requests.clear();
  logits_rows.clear();
  query_start.assign(1, 0);
  context_len.clear();
  num_drafts.clear();
  adapters.clear();
  adapter_of_request.clear();
  max_blocks = num_padding_logits_rows = 0;
  has_device_rows = has_host_rows = is_adapted = false;
  max_device_logprobs = -1;
  num_drafts_wanted = 0;
}

void StepLayout::LayOut(const SchedulerOutput& step, const InputBatch& batch) {
  const ExecutorLimits& limits = batch.limits();
  CHECK_LE(step.num_scheduled_tokens, limits.max_num_batched_tokens);
  CHECK_LE(step.requests.size(), static_cast<size_t>(limits.max_num_seqs));
  Clear();
  requests.assign(step.requests.begin(), step.requests.end());
  num_drafts_wanted = step.num_drafts_wanted;
  size_t next_mask = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    ScheduledRequest& request = requests[i];
    const InputBatch::Row& row = batch.row(request.slot);
    if (request.needs_sample) LayOutDrafts(row, &request);
    const int32_t end = request.num_computed_tokens + request.num_scheduled_tokens;
    CHECK(end <= row.num_tokens + row.num_drafts &&
          end <= int64_t{row.num_blocks} * limits.block_size)
        << "request " << i << " runs to " << end << " of " << row.num_tokens << " tokens in "
        << row.num_blocks << " blocks";
    max_blocks = std::max(max_blocks, int64_t{row.num_blocks});
    const auto request_idx = static_cast<int32_t>(i);
    const size_t first_mask = next_mask;
    while (next_mask < step.token_masks.size() &&
           step.token_masks[next_mask].request_idx == request_idx) {
      ++next_mask;
    }
    const auto num_masks = static_cast<int32_t>(next_mask - first_mask);
    CHECK(num_masks == 0 || num_masks > request.num_draft_tokens) << "a draft without a mask";
    const int32_t mask_idx = num_masks == 0 ? -1 : static_cast<int32_t>(first_mask);
    if (row.status.ok() && !limits.pooling) AddLogitsRows(request_idx, row, mask_idx);
    query_start.push_back(query_start.back() + request.num_scheduled_tokens);
    context_len.push_back(end);
    num_drafts.push_back(request.num_draft_tokens);
  }
  if (std::ranges::count(num_drafts, 0) == std::ssize(num_drafts)) num_drafts.clear();
  CHECK_EQ(next_mask, step.token_masks.size());
  PlaceAdapters(batch);
}

void StepLayout::PlaceAdapters(const InputBatch& batch) {
  for (const ScheduledRequest& request : requests) {
    const auto& adapter = batch.row(request.slot).adapter;
    if (adapter == nullptr) {
      adapter_of_request.push_back(-1);
      continue;
    }
    const auto found = std::ranges::find(adapters, adapter);
    adapter_of_request.push_back(static_cast<int32_t>(found - adapters.begin()));
    if (found == adapters.end()) adapters.push_back(adapter);
  }
  is_adapted = !adapters.empty();
  if (!is_adapted) adapter_of_request.clear();
}

// There may be fewer tokens and drafts than the scheduler supposed.
void StepLayout::LayOutDrafts(const InputBatch::Row& row, ScheduledRequest* request) {
  const int32_t num_known = request->num_scheduled_tokens - request->num_draft_tokens;
  const int32_t num_missing = request->num_computed_tokens + num_known - row.num_tokens;
  request->num_computed_tokens -= std::max(num_missing, 0);
  request->num_draft_tokens = row.num_drafts;
  request->num_scheduled_tokens = num_known + row.num_drafts;
}

// Of the request whose tokens come next. mask_idx: of the first row that samples; the masks of the
// others follow.
void StepLayout::AddLogitsRows(int32_t request_idx, const InputBatch::Row& row, int32_t mask_idx) {
  const ScheduledRequest& request = requests[static_cast<size_t>(request_idx)];
  const int32_t begin = request.num_computed_tokens, end = begin + request.num_scheduled_tokens;
  const size_t num_before = logits_rows.size();
  const auto add = [&](int32_t position, int32_t prompt_row) {
    logits_rows.push_back({.request_idx = request_idx,
                           .token_row = query_start.back() + position - begin,
                           .prompt_row = prompt_row,
                           .on_device = row.samples_on_device});
  };
  if (row.prompt_logprobs || row.prompt_scores) {
    // The logits at position p are those of the prompt's token p + 1.
    const int32_t first = row.prompt_logprobs ? begin : std::max(begin, row.prompt_scores->begin());
    for (int32_t p = first; p < std::min(end, row.num_prompt_tokens - 1); ++p) add(p, p);
  }
  if (request.needs_sample) {
    for (int32_t p = end - 1 - request.num_draft_tokens; p < end; ++p) {
      add(p, -1);
      if (mask_idx >= 0) logits_rows.back().mask_idx = mask_idx++;
    }
  }
  if (logits_rows.size() == num_before) return;
  if (!row.samples_on_device) {
    has_host_rows = true;
    return;
  }
  has_device_rows = true;
  max_device_logprobs = std::max(max_device_logprobs, row.sampling.num_logprobs);
  if (row.prompt_logprobs) {
    max_device_logprobs = std::max(max_device_logprobs, row.sampling.num_prompt_logprobs);
  }
}

void StepLayout::AddChunk(const InputBatch& batch, RequestSlot slot, int32_t begin, int32_t count,
                          bool makes_logits) {
  const auto request_idx = static_cast<int32_t>(requests.size());
  requests.push_back({.slot = slot, .num_computed_tokens = begin, .num_scheduled_tokens = count});
  query_start.push_back(query_start.back() + count);
  context_len.push_back(begin + count);
  max_blocks = std::max(max_blocks, int64_t{batch.row(slot).num_blocks});
  if (makes_logits) {
    logits_rows.push_back({.request_idx = request_idx, .token_row = query_start.back() - 1});
  }
}

void StepLayout::AddDrafts(const InputBatch& batch, RequestSlot slot, int32_t begin, int32_t count,
                           int32_t first_draft) {
  const auto request_idx = static_cast<int32_t>(requests.size());
  AddChunk(batch, slot, begin, count, /*makes_logits=*/false);
  for (int32_t i = 0; i < count; ++i) {
    logits_rows.push_back({.request_idx = request_idx, .token_row = first_draft + i});
  }
}

void StepLayout::LayOutPadding(int64_t num_tokens, int64_t tokens_per_request,
                               int64_t num_logits_rows, int32_t block_size) {
  Clear();
  max_blocks = (tokens_per_request + block_size - 1) / block_size;
  num_padding_logits_rows = num_logits_rows;
  for (int64_t begin = 0; begin < num_tokens; begin += tokens_per_request) {
    const int64_t count = std::min(tokens_per_request, num_tokens - begin);
    query_start.push_back(static_cast<int32_t>(begin + count));
    context_len.push_back(static_cast<int32_t>(count));
  }
}

void StepLayout::PadTo(int64_t num_requests) {
  const int64_t count = num_requests - this->num_requests();
  CHECK_GE(count, 0);
  for (int64_t i = 0; i < count; ++i) {
    query_start.push_back(query_start.back() + 1);
    context_len.push_back(1);
  }
  num_padding_logits_rows += count;
}

bool StepLayout::FollowsDraft(size_t row_idx) const {
  if (row_idx == 0) return false;
  const LogitsRow &row = logits_rows[row_idx], &before = logits_rows[row_idx - 1];
  return row.prompt_row < 0 && before.prompt_row < 0 && before.request_idx == row.request_idx;
}

bool StepLayout::is_uniform_decode() const {
  if (num_tokens() != num_requests() || logits_rows.size() != requests.size()) return false;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].num_scheduled_tokens != 1) return false;
    if (logits_rows[i].token_row != static_cast<int32_t>(i)) return false;
  }
  return true;
}

}  // namespace tandem
