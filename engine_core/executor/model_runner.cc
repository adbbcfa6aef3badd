#include "engine_core/executor/model_runner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine_core/executor/graph_sizes.h"

namespace tandem {
namespace {

// Logits are made in chunks of rows, so that a large batch over a large vocabulary stays bounded.
constexpr int64_t kMaxLogitsBytes = int64_t{256} << 20;

int64_t MaxLogitsRows(const ExecutorLimits& limits) {
  const int64_t fitting = kMaxLogitsBytes / (int64_t{limits.vocab_size} * int64_t{sizeof(float)});
  return std::clamp<int64_t>(fitting, 1, limits.max_num_seqs);
}

SamplingRow* SamplingRowAt(const StepInputs::Views& views, int64_t i) {
  return reinterpret_cast<SamplingRow*>(views.sampling_rows.Row<int32_t>(i));
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

AttentionShape AttentionShapeOf(const ModelConfig& config) {
  return {.num_heads = static_cast<int>(config.num_heads),
          .num_kv_heads = static_cast<int>(config.num_kv_heads),
          .head_dim = static_cast<int>(config.head_dim)};
}

ModelLimits ModelLimitsOf(const ExecutorLimits& limits) {
  return {.max_tokens = limits.max_num_batched_tokens,
          .max_logits_rows = MaxLogitsRows(limits),
          .max_positions = limits.max_model_len};
}

ModelRunner::ModelRunner(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model,
                         const ModelConfig& config, const ModelRunnerOptions& options)
    : limits_(options.limits),
      backend_(std::move(backend)),
      kv_spec_(KvSpecOf(config, limits_.block_size, 0, options.kv_format)),
      attention_shape_(AttentionShapeOf(config)),
      model_(std::move(model)),
      batch_(limits_,
             {.vocab_size = limits_.vocab_size,
              .max_logprobs = options.max_logprobs,
              .logprobs_mode = options.logprobs_mode,
              .process_seed = options.process_seed},
             !backend_->memory_is_host()),
      max_logits_rows_(MaxLogitsRows(limits_)),
      scratch_(static_cast<size_t>(backend_->num_threads()),
               static_cast<size_t>(limits_.vocab_size)) {
  if (!backend_->can_capture()) return;
  const int64_t most = std::min<int64_t>(limits_.max_num_seqs, max_logits_rows_);
  for (const int64_t size : options.graph_sizes) {
    if (size <= most) graph_sizes_.push_back(size);
  }
}

StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(std::unique_ptr<Backend> backend,
                                                           std::unique_ptr<Model> model,
                                                           const ModelConfig& config,
                                                           const ModelRunnerOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ModelRunner> runner,
                   CreateWithoutCache(std::move(backend), std::move(model), config, options));
  if (!options.graph_sizes.empty()) RETURN_IF_ERROR(runner->RunFirstSteps());
  RETURN_IF_ERROR(runner->AllocateKvCache(options.limits.num_blocks, options.limits.max_model_len));
  RETURN_IF_ERROR(runner->CaptureGraphs());
  return runner;
}

StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::CreateWithoutCache(
    std::unique_ptr<Backend> backend, std::unique_ptr<Model> model, const ModelConfig& config,
    const ModelRunnerOptions& options) {
  std::unique_ptr<ModelRunner> runner(
      new ModelRunner(std::move(backend), std::move(model), config, options));
  RETURN_IF_ERROR(runner->Allocate());
  return runner;
}

Status ModelRunner::Allocate() {
  const int64_t tokens = limits_.max_num_batched_tokens, seqs = limits_.max_num_seqs;
  ASSIGN_OR_RETURN(plan_, backend_->MakeAttentionPlan(attention_shape_, tokens, seqs));
  ASSIGN_OR_RETURN(inputs_, StepInputs::Create(backend_.get(),
                                               {.num_tokens = tokens,
                                                .num_requests = seqs,
                                                .num_logits_rows = tokens,
                                                .attention_work = backend_->AttentionWorkSize(
                                                    attention_shape_, tokens, seqs),
                                                .table_columns = batch_.max_blocks_per_request()}));
  ASSIGN_OR_RETURN(logits_, SharedTensor::Create(backend_.get(), DType::kF32,
                                                 {max_logits_rows_, limits_.vocab_size}));
  ASSIGN_OR_RETURN(sampler_, backend_->MakeSampler({.num_slots = seqs,
                                                    .vocab_size = limits_.vocab_size,
                                                    .max_logits_rows = max_logits_rows_,
                                                    .max_rows = tokens,
                                                    .max_tokens = limits_.max_model_len}));
  CHECK((sampler_ == nullptr) == backend_->memory_is_host());
  host_rows_.reserve(static_cast<size_t>(max_logits_rows_));
  for (StepInFlight& step : steps_) {
    step.requests.reserve(static_cast<size_t>(seqs));
    step.logits_rows.reserve(static_cast<size_t>(seqs));
    step.drawn.resize(static_cast<size_t>(seqs));
  }
  query_start_.reserve(static_cast<size_t>(seqs) + 1);
  context_len_.reserve(static_cast<size_t>(seqs));
  return OkStatus();
}

Status ModelRunner::AllocateKvCache(int32_t num_blocks, int32_t max_model_len) {
  CHECK_LE(max_model_len, limits_.max_model_len);
  kv_cache_.reset();
  limits_.num_blocks = num_blocks;
  limits_.max_model_len = max_model_len;
  kv_spec_.num_blocks = num_blocks;
  ASSIGN_OR_RETURN(kv_cache_, backend_->AllocateKvCache(kv_spec_));
  return OkStatus();
}

// ---- before the first step ----

void ModelRunner::BeginEmptyStep(int64_t num_tokens, int64_t tokens_per_request) {
  query_start_.assign(1, 0);
  context_len_.clear();
  max_blocks_ = (tokens_per_request + limits_.block_size - 1) / limits_.block_size;
  for (int64_t begin = 0; begin < num_tokens; begin += tokens_per_request) {
    const int64_t count = std::min(tokens_per_request, num_tokens - begin);
    query_start_.push_back(static_cast<int32_t>(begin + count));
    context_len_.push_back(static_cast<int32_t>(count));
  }
  const auto num_requests = static_cast<int64_t>(context_len_.size());
  num_tokens_ = num_tokens;
  BeginInputs(num_tokens, num_requests, std::min(num_tokens, max_logits_rows_));
  const StepInputs::Views& host = inputs_.host();
  for (const Tensor* numbers : {&host.token_ids, &host.block_table}) {
    std::fill_n(numbers->Data<int32_t>(), numbers->NumElements(), 0);
  }
  for (int64_t t = 0; t < num_tokens; ++t) {
    host.positions.Data<int32_t>()[t] = static_cast<int32_t>(t % tokens_per_request);
    host.slots.Data<int32_t>()[t] = -1;
  }
  for (int64_t i = 0; i < host.logits_rows.rows(); ++i) {
    host.logits_rows.Data<int32_t>()[i] = static_cast<int32_t>(i);
    *SamplingRowAt(host, i) = {};
  }
}

Status ModelRunner::RunFirstSteps() {
  constexpr int64_t kFewest = 32;  // smaller ones are met by the graphs
  RETURN_IF_ERROR(AllocateKvCache(1, limits_.max_model_len));
  const int64_t seqs = limits_.max_num_seqs;
  const int64_t most =
      std::min(int64_t{limits_.max_num_batched_tokens}, seqs * int64_t{limits_.max_model_len});
  const auto run = [&](int64_t num_tokens) {
    BeginEmptyStep(num_tokens, (num_tokens + seqs - 1) / seqs);
    SendInputs();
    RunModel();
  };
  run(most);
  RETURN_IF_ERROR(backend_->status());
  for (int64_t size = int64_t{1} << 20; size >= kFewest; size /= 2) {
    if (size < most) run(size);
    if (size / 4 * 3 < most && size / 4 * 3 >= kFewest) run(size / 4 * 3);
  }
  backend_->WaitFor(backend_->SetMark());
  kv_cache_.reset();
  return OkStatus();
}

// The largest first, so that smaller ones find the memory that it has needed.
Status ModelRunner::CaptureGraphs() {
  graphs_.resize(graph_sizes_.size());
  for (size_t i = graph_sizes_.size(); i-- > 0;) {
    BeginEmptyStep(graph_sizes_[i], 1);
    SendInputs();
    RunModel();  // what is chosen at a first run is chosen now
    backend_->BeginCapture();
    RunModel();
    ASSIGN_OR_RETURN(graphs_[i], backend_->EndCapture());
  }
  backend_->WaitFor(backend_->SetMark());
  return OkStatus();
}

// ---- steps ----

Status ModelRunner::Submit(const SchedulerOutput& step) {
  if (IsWaitedFor(step)) FinishStep(step_);
  ModelOutput* result = results_.Push();
  TakeIn(step);
  if (step.empty()) return OkStatus();
  if (step_->result != nullptr) ++num_overlapped_;
  step_ = step_ == &steps_[0] ? &steps_[1] : &steps_[0];
  CHECK(step_->result == nullptr);
  step_->result = result;
  LayOut(step);
  Flatten();
  SendInputs();
  clock_.Begin(&step_->times);
  if (graph_) {
    backend_->Replay(*graphs_[*graph_]);
    ++num_replays_;
  } else {
    RunModel();
  }
  if (!step_->has_host_rows) {
    const auto total = static_cast<int64_t>(step_->logits_rows.size());
    for (int64_t begin = max_logits_rows_; begin < total; begin += max_logits_rows_) {
      RunLogits(begin);
    }
    FetchDrawn();
  }
  AppendTokens();
  return backend_->status();
}

bool ModelRunner::IsWaitedFor(const SchedulerOutput& step) const {
  if (step_->result == nullptr) return false;
  if (step_->has_host_rows) return true;
  // Its logprobs of a prompt are kept in the request's row.
  return std::ranges::any_of(step.freed_slots, [this](RequestSlot slot) {
    return batch_.row(slot).num_prompt_logprobs >= 0;
  });
}

Status ModelRunner::Collect(ModelOutput* result) {
  for (StepInFlight& step : steps_) {
    if (step.result != nullptr && results_.IsOldest(step.result)) FinishStep(&step);
  }
  results_.Pop(result);
  return OkStatus();
}

void ModelRunner::FinishStep(StepInFlight* step) {
  if (step->has_host_rows) {
    CHECK(step == step_) << "its logits are gone";
    const auto total = static_cast<int64_t>(step->logits_rows.size());
    for (int64_t begin = 0; begin < total; begin += max_logits_rows_) {
      if (begin > 0) RunLogits(begin);
      FillOnHost(begin);
    }
    FetchDrawn();
  }
  if (step->has_device_rows) TakeDrawn(step);
  clock_.Add(step->times);
  FoldBack(step);
  step->result = nullptr;
}

// Frees, admissions and new blocks, before anything runs.
void ModelRunner::TakeIn(const SchedulerOutput& step) {
  for (const RequestSlot slot : step.freed_slots) batch_.Remove(slot);
  for (const AdmittedRequest& admitted : step.admitted) {
    const ScheduledRequest& request = step.requests[static_cast<size_t>(admitted.request_idx)];
    batch_.Admit(request.slot, admitted, request.num_computed_tokens);
    if (batch_.row(request.slot).draws_on_device) {
      sampler_->Admit(Index(request.slot), batch_.Admission(request.slot));
    }
  }
  for (const ScheduledRequest& request : step.requests) {
    batch_.AppendBlocks(request.slot, step.NewBlocks(request));
  }
}

// Where the step's tokens stand, one request after another, and which rows make logits.
void ModelRunner::LayOut(const SchedulerOutput& step) {
  CHECK_LE(step.num_scheduled_tokens, limits_.max_num_batched_tokens);
  CHECK_LE(step.requests.size(), static_cast<size_t>(limits_.max_num_seqs));
  step_->requests.assign(step.requests.begin(), step.requests.end());
  step_->logits_rows.clear();
  step_->max_logprobs = -1;
  step_->has_device_rows = step_->has_host_rows = false;
  query_start_.assign(1, 0);
  context_len_.clear();
  max_blocks_ = 0;
  for (size_t i = 0; i < step.requests.size(); ++i) {
    const ScheduledRequest& request = step.requests[i];
    const InputBatch::Row& row = batch_.row(request.slot);
    const bool ends_prompt =
        request.needs_sample && request.num_computed_tokens < row.num_prompt_tokens;
    step_->drawn[i] = {.result = {.status = row.status, .token_id = 0, .num_nans = 0},
                       .logprobs = std::nullopt,
                       .on_host = request.needs_sample && row.status.ok() && !row.draws_on_device,
                       .has_prompt_logprobs = ends_prompt && row.num_prompt_logprobs >= 0};
    const auto num_blocks = static_cast<int64_t>(batch_.block_table(request.slot).size());
    const auto num_tokens = static_cast<int64_t>(batch_.token_ids(request.slot).size());
    const int32_t end = request.num_computed_tokens + request.num_scheduled_tokens;
    CHECK(end <= num_tokens && end <= num_blocks * limits_.block_size)
        << "request " << i << " runs to " << end << " of " << num_tokens << " tokens in "
        << num_blocks << " blocks";
    max_blocks_ = std::max(max_blocks_, num_blocks);
    AddLogitsRows(request, static_cast<int32_t>(i), query_start_.back());
    query_start_.push_back(query_start_.back() + request.num_scheduled_tokens);
    context_len_.push_back(end);
  }
  num_tokens_ = query_start_.back();
}

bool ModelRunner::IsUniformDecode() const {
  const size_t num_requests = step_->requests.size();
  if (num_tokens_ != static_cast<int64_t>(num_requests)) return false;
  if (step_->logits_rows.size() != num_requests) return false;
  for (size_t i = 0; i < num_requests; ++i) {
    if (step_->requests[i].num_scheduled_tokens != 1) return false;
    if (step_->logits_rows[i].token_row != static_cast<int32_t>(i)) return false;
  }
  return true;
}

void ModelRunner::BeginInputs(int64_t num_tokens, int64_t num_requests, int64_t num_logits_rows) {
  inputs_.Begin(
      {.num_tokens = num_tokens,
       .num_requests = num_requests,
       .num_logits_rows = num_logits_rows,
       .attention_work = backend_->AttentionWorkSize(attention_shape_, num_tokens, num_requests),
       .table_columns = max_blocks_});
}

// Fills the step's inputs; those of a graph up to its size.
void ModelRunner::Flatten() {
  const auto num_requests = static_cast<int64_t>(step_->requests.size());
  graph_.reset();
  if (!graphs_.empty() && IsUniformDecode()) graph_ = GraphSizeFor(graph_sizes_, num_requests);
  if (graph_) {
    const int64_t size = graph_sizes_[*graph_];
    BeginInputs(size, size, size);
    Pad(num_requests, size);
  } else {
    BeginInputs(num_tokens_, num_requests, static_cast<int64_t>(step_->logits_rows.size()));
  }
  const StepInputs::Views& host = inputs_.host();
  auto* token_ids = host.token_ids.Data<int32_t>();
  auto* positions = host.positions.Data<int32_t>();
  auto* slots = host.slots.Data<int32_t>();
  int32_t t = 0;
  for (int64_t i = 0; i < num_requests; ++i) {
    const ScheduledRequest& request = step_->requests[static_cast<size_t>(i)];
    const std::span<const TokenId> tokens = batch_.token_ids(request.slot);
    const std::span<const int32_t> blocks = batch_.block_table(request.slot);
    std::copy(blocks.begin(), blocks.end(), host.block_table.Row<int32_t>(i));
    const int32_t begin = request.num_computed_tokens;
    for (int32_t p = begin; p < begin + request.num_scheduled_tokens; ++p, ++t) {
      token_ids[t] = tokens[static_cast<size_t>(p)];
      positions[t] = p;
      slots[t] = blocks[static_cast<size_t>(p / limits_.block_size)] * limits_.block_size +
                 p % limits_.block_size;
    }
  }
  for (size_t i = 0; i < step_->logits_rows.size(); ++i) {
    const LogitsRow& row = step_->logits_rows[i];
    host.logits_rows.Data<int32_t>()[i] = row.token_row;
    *SamplingRowAt(host, static_cast<int64_t>(i)) = SamplingRowOf(row);
  }
}

SamplingRow ModelRunner::SamplingRowOf(const LogitsRow& logits_row) const {
  if (!logits_row.on_device) return {};
  const RequestSlot slot = step_->requests[static_cast<size_t>(logits_row.request_idx)].slot;
  const InputBatch::Row& row = batch_.row(slot);
  SamplingRow sampling_row = {.slot = Index(slot),
                              .position = row.num_tokens,
                              .num_outputs = row.num_tokens - row.num_prompt_tokens};
  if (logits_row.prompt_row >= 0) {
    const auto next = static_cast<size_t>(logits_row.prompt_row) + 1;
    sampling_row.told_token_id = batch_.token_ids(slot)[next];
  }
  return sampling_row;
}

// Rows [begin, end) are requests of one token that nobody has asked for: it is written nowhere, and
// sees the first slot of the null block.
void ModelRunner::Pad(int64_t begin, int64_t end) {
  const StepInputs::Views& host = inputs_.host();
  for (int64_t i = begin; i < end; ++i) {
    host.token_ids.Data<int32_t>()[i] = 0;
    host.positions.Data<int32_t>()[i] = 0;
    host.slots.Data<int32_t>()[i] = -1;
    host.logits_rows.Data<int32_t>()[i] = static_cast<int32_t>(i);
    *SamplingRowAt(host, i) = {};
    host.block_table.Row<int32_t>(i)[0] = 0;
    query_start_.push_back(query_start_.back() + 1);
    context_len_.push_back(1);
  }
}

// Plans attention, and puts the copy of all inputs before the next ops.
void ModelRunner::SendInputs() {
  AttentionBatch attention;
  attention.query_start = query_start_;
  attention.context_len = context_len_;
  attention.positions = inputs_.device().positions;
  attention.slot_mapping = inputs_.device().slots;
  attention.block_table = inputs_.device().block_table;
  if (inputs_.host().attention_work.rows() > 0) {
    attention.host_work = inputs_.host().attention_work;
    attention.work = inputs_.device().attention_work;
  }
  backend_->PlanAttention(attention, plan_.get());
  inputs_.Send();
}

void ModelRunner::AddLogitsRows(const ScheduledRequest& request, int32_t request_idx,
                                int32_t first_row) {
  const InputBatch::Row& row = batch_.row(request.slot);
  if (!row.status.ok()) return;
  const int32_t begin = request.num_computed_tokens;
  const int32_t end = begin + request.num_scheduled_tokens;
  const size_t num_before = step_->logits_rows.size();
  if (row.num_prompt_logprobs >= 0) {
    // Position p predicts the prompt's token p + 1.
    for (int32_t p = begin; p < std::min(end, row.num_prompt_tokens - 1); ++p) {
      step_->logits_rows.push_back({.request_idx = request_idx,
                                    .token_row = first_row + p - begin,
                                    .prompt_row = p,
                                    .on_device = row.draws_on_device});
    }
  }
  if (request.needs_sample) {
    step_->logits_rows.push_back({.request_idx = request_idx,
                                  .token_row = first_row + end - 1 - begin,
                                  .on_device = row.draws_on_device});
  }
  if (step_->logits_rows.size() == num_before) return;
  if (!row.draws_on_device) {
    step_->has_host_rows = true;
    return;
  }
  step_->has_device_rows = true;
  step_->max_logprobs =
      std::max({step_->max_logprobs, row.sampling.num_logprobs, row.num_prompt_logprobs});
}

// The layers and the first logits.
void ModelRunner::RunModel() {
  if (sampler_ != nullptr) sampler_->FillDrawn(inputs_.device().token_ids);
  model_->Forward(
      {.token_ids = inputs_.device().token_ids, .plan = plan_.get(), .kv_cache = kv_cache_.get()});
  RunLogits(0);
}

void ModelRunner::RunLogits(int64_t begin) {
  const StepInputs::Views& inputs = inputs_.device();
  const int64_t count = std::min(max_logits_rows_, inputs.logits_rows.rows() - begin);
  if (count == 0) return;
  const Tensor logits = logits_.device().Rows(0, count);
  model_->Logits(logits, inputs.logits_rows.Rows(begin, count));
  if (sampler_ != nullptr) sampler_->Draw(logits, inputs.sampling_rows.Rows(begin, count), begin);
}

}  // namespace tandem
