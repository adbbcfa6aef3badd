#include "engine_core/executor/input_batch.h"

#include <algorithm>

#include "kernels/device_sampler.h"
#include "proto_msgpack/token_ids.h"

namespace tandem {
namespace {

// What stands for embeddings is no token to be penalized.
void CountPrompt(std::span<const TokenId> prompt, const PromptEmbeddings* embeddings,
                 TokenCounts* counts) {
  int32_t next = 0;
  const auto end = static_cast<int32_t>(prompt.size());
  const auto count_to = [&](int32_t to) {
    counts->AddPrompt(prompt.subspan(static_cast<size_t>(next), static_cast<size_t>(to - next)));
  };
  if (embeddings != nullptr) {
    embeddings->ForEachRun(0, end, [&](PromptEmbeddings::Run run, std::string_view) {
      count_to(run.begin);
      next = run.end();
    });
  }
  count_to(end);
}

}  // namespace

InputBatch::InputBatch(const ExecutorLimits& limits, const SamplingLimits& sampling_limits,
                       bool has_device_sampler)
    : limits_(limits),
      sampling_limits_(sampling_limits),
      has_device_sampler_(has_device_sampler),
      max_blocks_((limits.max_model_len + limits.block_size - 1) / limits.block_size),
      rows_(static_cast<size_t>(limits.max_num_seqs)),
      token_ids_(std::make_unique_for_overwrite<TokenId[]>(
          static_cast<size_t>(limits.max_num_seqs) * static_cast<size_t>(limits.max_model_len))),
      block_table_(std::make_unique_for_overwrite<int32_t[]>(
          static_cast<size_t>(limits.max_num_seqs) *
          static_cast<size_t>(limits.groups.count() * max_blocks_))) {}

void InputBatch::Remove(RequestSlot slot) {
  Row& r = row(slot);
  CHECK(r.in_use) << "slot " << Index(slot);
  r.in_use = false;
  r.embeddings.reset();
  r.images.reset();
  r.adapter.reset();
  r.prompt_logprobs.reset();
  r.prompt_scores.reset();
  r.given_outputs.clear();
}

void InputBatch::Admit(RequestSlot slot, const AdmittedRequest& request,
                       int32_t num_computed_tokens) {
  CHECK(Index(slot) >= 0 && Index(slot) < limits_.max_num_seqs) << Index(slot);
  CHECK_LE(request.token_ids.size(), static_cast<size_t>(limits_.max_model_len));
  Row& r = row(slot);
  CHECK(!r.in_use) << "slot " << Index(slot);
  r.in_use = true;
  r.num_tokens = static_cast<int32_t>(request.token_ids.size());
  r.num_drafts = 0;
  r.num_prompt_tokens = request.num_prompt_tokens;
  r.num_blocks = 0;
  r.embeddings = request.embeddings;
  r.images = request.images;
  if (request.adapter != nullptr) r.adapter = request.adapter->weights;
  std::copy(request.token_ids.begin(), request.token_ids.end(), TokensOf(slot));
  r.status = ResolveParams(request, num_computed_tokens, &r);
  // The device counts every id of a prompt, also the zeros that stand for embeddings.
  const bool counts_embeddings = r.embeddings != nullptr && r.sampling.has_penalties();
  r.samples_on_device = has_device_sampler_ && r.status.ok() && FitsDeviceSampler(r.sampling) &&
                        !counts_embeddings && !r.prompt_scores && r.given_outputs.empty();
  if (r.status.ok() && r.has_host_counts()) {
    r.counts.Reset(limits_.vocab_size, limits_.max_model_len);
    CountPrompt(request.token_ids.first(static_cast<size_t>(r.num_prompt_tokens)),
                r.embeddings.get(), &r.counts);
    for (const TokenId id : output_ids(slot)) r.counts.AddOutput(id);
  }
}

Status InputBatch::ResolveParams(const AdmittedRequest& request, int32_t num_computed_tokens,
                                 Row* r) const {
  const wire::SamplingParams& params = *request.sampling_params;
  ASSIGN_OR_RETURN(r->sampling, ResolveSampling(params, *request.request_id, sampling_limits_));
  if (!params.trace_decode_token_ids.is_nil()) {
    ASSIGN_OR_RETURN(r->given_outputs, wire::UnpackTokenIds(params.trace_decode_token_ids));
  }
  // With outputs there, they were delivered before the preemption.
  const bool is_delivered = r->num_tokens > r->num_prompt_tokens;
  if (is_delivered) r->sampling.num_prompt_logprobs = -1;
  const bool scores = !params.prompt_logprob_token_ids.is_nil() && !is_delivered;
  if (r->sampling.num_prompt_logprobs < 0 && !scores) return OkStatus();
  if (num_computed_tokens > 0) {
    return InternalError("prompt_logprobs of a prompt whose first " +
                         std::to_string(num_computed_tokens) +
                         " tokens came from the prefix cache");
  }
  if (scores) {
    ASSIGN_OR_RETURN(r->prompt_scores, PromptScores::For(params));
  }
  if (r->sampling.num_prompt_logprobs < 0) return OkStatus();
  wire::LogprobsRows& rows = r->prompt_logprobs.emplace();
  rows.num_rows = r->num_prompt_tokens - 1;
  rows.num_columns = r->sampling.num_prompt_logprobs + 1;
  const size_t size = static_cast<size_t>(rows.num_rows) * static_cast<size_t>(rows.num_columns);
  rows.token_ids.resize(size);
  rows.logprobs.resize(size);
  rows.ranks.resize(static_cast<size_t>(rows.num_rows));
  return OkStatus();
}

void InputBatch::AppendBlocks(RequestSlot slot, std::span<const BlockId> block_ids) {
  Row& r = row(slot);
  const auto num_groups = static_cast<size_t>(limits_.groups.count());
  const auto num_new = static_cast<int32_t>(block_ids.size() / num_groups);
  CHECK_LE(r.num_blocks + num_new, max_blocks_);
  for (size_t group = 0; group < num_groups; ++group) {
    int32_t* next = TableOf(slot, static_cast<int32_t>(group)) + r.num_blocks;
    for (size_t i = group; i < block_ids.size(); i += num_groups) *next++ = Index(block_ids[i]);
  }
  r.num_blocks += num_new;
}

bool InputBatch::AppendToken(RequestSlot slot, TokenId token_id) {
  Row& r = row(slot);
  const bool was_drafted = r.num_drafts > 0 && TokensOf(slot)[r.num_tokens] == token_id;
  r.num_drafts = was_drafted ? r.num_drafts - 1 : 0;
  // The last token a request may have is never run, so it may fall outside the row.
  if (r.num_tokens < limits_.max_model_len) TokensOf(slot)[r.num_tokens++] = token_id;
  if (r.has_host_counts()) r.counts.AddOutput(token_id);
  return was_drafted;
}

void InputBatch::SetDrafts(RequestSlot slot, std::span<const TokenId> drafts) {
  row(slot).num_drafts = 0;
  PlaceDrafts(slot, drafts);
}

void InputBatch::PlaceDrafts(RequestSlot slot, std::span<const TokenId> drafts) {
  Row& r = row(slot);
  CHECK_LE(r.num_tokens + static_cast<int64_t>(drafts.size()), limits_.max_model_len);
  int32_t count = 0;
  for (const TokenId draft : drafts) {
    if (draft == kNoToken && count >= r.num_drafts) break;
    if (draft != kNoToken) TokensOf(slot)[r.num_tokens + count] = draft;
    ++count;
  }
  r.num_drafts = count;
}

std::span<const TokenId> InputBatch::token_ids(RequestSlot slot) const {
  return {TokensOf(slot), static_cast<size_t>(ConstRow(slot).num_tokens)};
}

std::span<const TokenId> InputBatch::prompt_ids(RequestSlot slot) const {
  return {TokensOf(slot), static_cast<size_t>(ConstRow(slot).num_prompt_tokens)};
}

std::span<const TokenId> InputBatch::output_ids(RequestSlot slot) const {
  return token_ids(slot).subspan(static_cast<size_t>(ConstRow(slot).num_prompt_tokens));
}

std::span<const TokenId> InputBatch::input_ids(RequestSlot slot) const {
  const Row& r = ConstRow(slot);
  return {TokensOf(slot), static_cast<size_t>(r.num_tokens + r.num_drafts)};
}

std::span<const int32_t> InputBatch::block_table(RequestSlot slot, int32_t group) const {
  return {TableOf(slot, group), static_cast<size_t>(ConstRow(slot).num_blocks)};
}

}  // namespace tandem
