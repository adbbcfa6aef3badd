#include "engine_core/executor/model_runner.h"

#include <algorithm>
#include <string>

#include "engine_core/executor/device_sampling.h"
#include "engine_core/sampling/row_math.h"

namespace tandem {
namespace {

// Logits are made in chunks of rows, so that a large batch over a large vocabulary stays bounded.
constexpr int64_t kMaxLogitsBytes = int64_t{128} << 20;

int64_t MaxLogitsRows(const ExecutorLimits& limits) {
  const int64_t fitting = kMaxLogitsBytes / (int64_t{limits.vocab_size} * int64_t{sizeof(float)});
  return std::clamp<int64_t>(fitting, 1, limits.max_num_seqs);
}

}  // namespace

KvCacheSpec KvSpecOf(const ModelConfig& config, int32_t block_size, int64_t num_blocks,
                     KvFormat format) {
  return {.num_layers = static_cast<int>(config.num_layers),
          .num_kv_heads = static_cast<int>(config.num_kv_heads),
          .head_dim = static_cast<int>(config.head_dim),
          .block_size = block_size,
          .num_blocks = num_blocks,
          .format = format};
}

ModelLimits ModelLimitsOf(const ExecutorLimits& limits) {
  return {.max_tokens = limits.max_num_batched_tokens,
          .max_logits_rows = MaxLogitsRows(limits),
          .max_positions = limits.max_model_len};
}

ModelRunner::ModelRunner(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model,
                         const ModelRunnerOptions& options)
    : limits_(options.limits),
      backend_(std::move(backend)),
      model_(std::move(model)),
      batch_(limits_,
             {.vocab_size = limits_.vocab_size,
              .max_logprobs = options.max_logprobs,
              .logprobs_mode = options.logprobs_mode,
              .process_seed = options.process_seed},
             !backend_->memory_is_host()),
      max_logits_rows_(MaxLogitsRows(limits_)),
      drawn_(static_cast<size_t>(limits_.max_num_seqs)),
      scratch_(static_cast<size_t>(backend_->num_threads()),
               static_cast<size_t>(limits_.vocab_size)) {}

StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(std::unique_ptr<Backend> backend,
                                                           std::unique_ptr<Model> model,
                                                           const ModelConfig& config,
                                                           const ModelRunnerOptions& options) {
  std::unique_ptr<ModelRunner> runner(
      new ModelRunner(std::move(backend), std::move(model), options));
  RETURN_IF_ERROR(runner->Allocate(config, options.kv_format));
  return runner;
}

Status ModelRunner::Allocate(const ModelConfig& config, KvFormat kv_format) {
  const int64_t tokens = limits_.max_num_batched_tokens, seqs = limits_.max_num_seqs;
  ASSIGN_OR_RETURN(kv_cache_, backend_->AllocateKvCache(KvSpecOf(config, limits_.block_size,
                                                                 limits_.num_blocks, kv_format)));
  const AttentionShape shape = {.num_heads = static_cast<int>(config.num_heads),
                                .num_kv_heads = static_cast<int>(config.num_kv_heads),
                                .head_dim = static_cast<int>(config.head_dim)};
  plan_ = backend_->MakeAttentionPlan(shape, tokens, seqs);
  ASSIGN_OR_RETURN(token_ids_, SharedTensor::Create(backend_.get(), DType::kI32, {tokens}));
  ASSIGN_OR_RETURN(positions_, SharedTensor::Create(backend_.get(), DType::kI32, {tokens}));
  ASSIGN_OR_RETURN(slots_, SharedTensor::Create(backend_.get(), DType::kI32, {tokens}));
  ASSIGN_OR_RETURN(block_table_, SharedTensor::Create(backend_.get(), DType::kI32,
                                                      {seqs, batch_.max_blocks_per_request()}));
  ASSIGN_OR_RETURN(logits_idx_,
                   SharedTensor::Create(backend_.get(), DType::kI32, {max_logits_rows_}));
  ASSIGN_OR_RETURN(logits_, SharedTensor::Create(backend_.get(), DType::kF32,
                                                 {max_logits_rows_, config.vocab_size}));
  ASSIGN_OR_RETURN(sampler_, backend_->MakeSampler({.num_slots = seqs,
                                                    .vocab_size = config.vocab_size,
                                                    .max_logits_rows = max_logits_rows_,
                                                    .max_tokens = limits_.max_model_len}));
  CHECK((sampler_ == nullptr) == backend_->memory_is_host());
  draw_rows_.reserve(static_cast<size_t>(seqs));
  drawn_request_idx_.reserve(static_cast<size_t>(seqs));
  host_rows_.reserve(static_cast<size_t>(max_logits_rows_));
  query_start_.reserve(static_cast<size_t>(seqs) + 1);
  context_len_.reserve(static_cast<size_t>(seqs));
  logits_rows_.reserve(static_cast<size_t>(seqs));
  return OkStatus();
}

Status ModelRunner::Submit(const SchedulerOutput& step) {
  ModelOutput* result = results_.Push();
  TakeIn(step);
  if (step.empty()) return OkStatus();
  Flatten(step);
  RunModel();
  RunLogits(step);
  FoldBack(step, result);
  return OkStatus();
}

Status ModelRunner::Collect(ModelOutput* result) {
  results_.Pop(result);
  return OkStatus();
}

// Frees, admissions and new blocks, before anything runs.
void ModelRunner::TakeIn(const SchedulerOutput& step) {
  for (const RequestSlot slot : step.freed_slots) batch_.Remove(slot);
  for (const AdmittedRequest& admitted : step.admitted) {
    const ScheduledRequest& request = step.requests[static_cast<size_t>(admitted.request_idx)];
    batch_.Admit(request.slot, admitted, request.num_computed_tokens);
    const InputBatch::Row& row = batch_.row(request.slot);
    if (!row.draws_on_device) continue;
    sampler_->Admit(Index(request.slot),
                    DeviceAdmissionOf(row.sampling, static_cast<size_t>(limits_.vocab_size),
                                      batch_.token_ids(request.slot), row.num_prompt_tokens,
                                      &banned_token_ids_));
  }
  for (const ScheduledRequest& request : step.requests) {
    batch_.AppendBlocks(request.slot, step.NewBlocks(request));
  }
}

// Lays the step's tokens out one request after another and notes which rows make logits.
void ModelRunner::Flatten(const SchedulerOutput& step) {
  CHECK_LE(step.num_scheduled_tokens, limits_.max_num_batched_tokens);
  CHECK_LE(step.requests.size(), static_cast<size_t>(limits_.max_num_seqs));
  auto* token_ids = token_ids_.host().Data<int32_t>();
  auto* positions = positions_.host().Data<int32_t>();
  auto* slots = slots_.host().Data<int32_t>();
  query_start_.assign(1, 0);
  context_len_.clear();
  logits_rows_.clear();
  max_blocks_ = 0;
  int32_t t = 0;
  for (size_t i = 0; i < step.requests.size(); ++i) {
    const ScheduledRequest& request = step.requests[i];
    const std::span<const TokenId> tokens = batch_.token_ids(request.slot);
    const std::span<const int32_t> blocks = batch_.block_table(request.slot);
    const int32_t begin = request.num_computed_tokens;
    const int32_t end = begin + request.num_scheduled_tokens;
    CHECK(end <= static_cast<int32_t>(tokens.size()) &&
          end <= static_cast<int32_t>(blocks.size()) * limits_.block_size)
        << "request " << i << " runs to " << end << " of " << tokens.size() << " tokens in "
        << blocks.size() << " blocks";
    std::copy(blocks.begin(), blocks.end(),
              block_table_.host().Row<int32_t>(static_cast<int64_t>(i)));
    max_blocks_ = std::max(max_blocks_, static_cast<int64_t>(blocks.size()));
    AddLogitsRows(request, static_cast<int32_t>(i), t);
    for (int32_t p = begin; p < end; ++p, ++t) {
      token_ids[t] = tokens[static_cast<size_t>(p)];
      positions[t] = p;
      slots[t] = blocks[static_cast<size_t>(p / limits_.block_size)] * limits_.block_size +
                 p % limits_.block_size;
    }
    query_start_.push_back(t);
    context_len_.push_back(end);
  }
  num_tokens_ = t;
}

void ModelRunner::AddLogitsRows(const ScheduledRequest& request, int32_t request_idx,
                                int32_t first_row) {
  const InputBatch::Row& row = batch_.row(request.slot);
  if (!row.status.ok()) return;
  const int32_t begin = request.num_computed_tokens;
  const int32_t end = begin + request.num_scheduled_tokens;
  if (row.num_prompt_logprobs >= 0) {
    // Position p predicts the prompt's token p + 1.
    for (int32_t p = begin; p < std::min(end, row.num_prompt_tokens - 1); ++p) {
      logits_rows_.push_back({request_idx, first_row + p - begin, p});
    }
  }
  if (request.needs_sample) {
    logits_rows_.push_back({.request_idx = request_idx,
                            .token_row = first_row + end - 1 - begin,
                            .on_device = row.draws_on_device});
  }
}

void ModelRunner::RunModel() {
  const auto num_requests = static_cast<int64_t>(context_len_.size());
  token_ids_.Send(num_tokens_);
  positions_.Send(num_tokens_);
  slots_.Send(num_tokens_);
  block_table_.Send(num_requests, max_blocks_);
  AttentionBatch attention;
  attention.query_start = query_start_;
  attention.context_len = context_len_;
  attention.positions = positions_.device().Rows(0, num_tokens_);
  attention.slot_mapping = slots_.device().Rows(0, num_tokens_);
  attention.block_table = block_table_.device().Rows(0, num_requests);
  backend_->PlanAttention(attention, plan_.get());
  model_->Forward({.token_ids = token_ids_.device().Rows(0, num_tokens_),
                   .plan = plan_.get(),
                   .kv_cache = kv_cache_.get()});
}

void ModelRunner::RunLogits(const SchedulerOutput& step) {
  const auto total = static_cast<int64_t>(logits_rows_.size());
  drawn_request_idx_.clear();
  for (int64_t begin = 0; begin < total; begin += max_logits_rows_) {
    const int64_t count = std::min(max_logits_rows_, total - begin);
    LogitsRow* rows = logits_rows_.data() + begin;
    for (int64_t i = 0; i < count; ++i) {
      logits_idx_.host().Data<int32_t>()[i] = rows[i].token_row;
    }
    logits_idx_.Send(count);
    model_->Logits(logits_.device().Rows(0, count), logits_idx_.device().Rows(0, count));
    DrawOnDevice(step, begin, count);
    FillOnHost(step, begin, count);
  }
  TakeDrawn();
}

void ModelRunner::DrawOnDevice(const SchedulerOutput& step, int64_t begin, int64_t count) {
  draw_rows_.clear();
  const auto first = static_cast<int64_t>(drawn_request_idx_.size());
  for (int64_t i = 0; i < count; ++i) {
    const LogitsRow& logits_row = logits_rows_[static_cast<size_t>(begin + i)];
    if (!logits_row.on_device) continue;
    const RequestSlot slot = step.requests[static_cast<size_t>(logits_row.request_idx)].slot;
    const InputBatch::Row& row = batch_.row(slot);
    draw_rows_.push_back({.logits_row = static_cast<int32_t>(i),
                          .slot = Index(slot),
                          .position = row.num_tokens,
                          .num_outputs = row.num_tokens - row.num_prompt_tokens});
    drawn_request_idx_.push_back(logits_row.request_idx);
  }
  if (draw_rows_.empty()) return;
  sampler_->Draw(logits_.device().Rows(0, count), draw_rows_, first);
}

void ModelRunner::FillOnHost(const SchedulerOutput& step, int64_t begin, int64_t count) {
  host_rows_.clear();
  for (int64_t i = 0; i < count; ++i) {
    if (logits_rows_[static_cast<size_t>(begin + i)].on_device) continue;
    host_rows_.push_back(i);
    logits_.Fetch(1, i);
  }
  const auto num_rows = static_cast<int64_t>(host_rows_.size());
  backend_->ParallelFor(num_rows, 1, [&](int64_t first, int64_t last) {
    const size_t lane = scratch_.Claim();
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = host_rows_[static_cast<size_t>(i)];
      const std::span<float> logits(logits_.host().Row<float>(row),
                                    static_cast<size_t>(limits_.vocab_size));
      FillRow(step, logits, &logits_rows_[static_cast<size_t>(begin + row)], scratch_[lane]);
    }
    scratch_.Release(lane);
  });
}

// What the device has drawn, in one copy.
void ModelRunner::TakeDrawn() {
  if (drawn_request_idx_.empty()) return;
  sampler_->Fetch(static_cast<int64_t>(drawn_request_idx_.size()));
  for (size_t i = 0; i < drawn_request_idx_.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    const auto request_idx = static_cast<size_t>(drawn_request_idx_[i]);
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
void ModelRunner::FillRow(const SchedulerOutput& step, std::span<float> logits, LogitsRow* row,
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

// Tokens into the rows and the result; what goes beyond a token into RequestResults.
void ModelRunner::FoldBack(const SchedulerOutput& step, ModelOutput* result) {
  auto logits_row = logits_rows_.begin();  // in the order of the requests
  for (size_t i = 0; i < step.requests.size(); ++i) {
    const ScheduledRequest& request = step.requests[i];
    InputBatch::Row& row = batch_.row(request.slot);
    RequestResult extra;
    extra.request_idx = static_cast<int32_t>(i);
    TokenId token = kNoToken;
    int64_t prompt_nans = 0;
    for (; logits_row != logits_rows_.end() && logits_row->request_idx == extra.request_idx;
         ++logits_row) {
      prompt_nans += logits_row->num_nans;
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
    if (request.needs_sample) batch_.AppendToken(request.slot, std::max(token, TokenId{0}));
    result->sampled_token_ids.push_back(token);
    const bool has_extra = !extra.status.ok() || extra.num_nans_in_logits > 0 || extra.logprobs ||
                           extra.prompt_logprobs;
    if (has_extra) result->results.push_back(std::move(extra));
  }
}

}  // namespace tandem
