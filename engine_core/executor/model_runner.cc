#include "engine_core/executor/model_runner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine_core/executor/device_sampling.h"
#include "engine_core/executor/graph_sizes.h"
#include "engine_core/sampling/row_math.h"

namespace tandem {
namespace {

// Logits are made in chunks of rows, so that a large batch over a large vocabulary stays bounded.
constexpr int64_t kMaxLogitsBytes = int64_t{256} << 20;

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
                         const ModelConfig& config, const ModelRunnerOptions& options)
    : limits_(options.limits),
      backend_(std::move(backend)),
      kv_spec_(KvSpecOf(config, limits_.block_size, 0, options.kv_format)),
      attention_shape_({.num_heads = static_cast<int>(config.num_heads),
                        .num_kv_heads = static_cast<int>(config.num_kv_heads),
                        .head_dim = static_cast<int>(config.head_dim)}),
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
               static_cast<size_t>(limits_.vocab_size)) {
  if (!backend_->can_capture() || !model_->can_be_captured()) return;
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
  if (!options.graph_sizes.empty()) RETURN_IF_ERROR(runner->RunLargestStep());
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
  plan_ = backend_->MakeAttentionPlan(attention_shape_, tokens, seqs);
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
                                                    .max_tokens = limits_.max_model_len}));
  CHECK((sampler_ == nullptr) == backend_->memory_is_host());
  draw_rows_.reserve(static_cast<size_t>(seqs));
  drawn_request_idx_.reserve(static_cast<size_t>(seqs));
  host_rows_.reserve(static_cast<size_t>(max_logits_rows_));
  requests_.reserve(static_cast<size_t>(seqs));
  query_start_.reserve(static_cast<size_t>(seqs) + 1);
  context_len_.reserve(static_cast<size_t>(seqs));
  logits_rows_.reserve(static_cast<size_t>(seqs));
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
  requests_.clear();
  logits_rows_.clear();
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
  for (const Tensor* numbers : {&host.token_ids, &host.logits_rows, &host.block_table}) {
    std::fill_n(numbers->Data<int32_t>(), numbers->NumElements(), 0);
  }
  for (int64_t t = 0; t < num_tokens; ++t) {
    host.positions.Data<int32_t>()[t] = static_cast<int32_t>(t % tokens_per_request);
    host.slots.Data<int32_t>()[t] = -1;
  }
  for (int64_t i = 0; i < host.logits_rows.rows(); ++i) {
    host.logits_rows.Data<int32_t>()[i] = static_cast<int32_t>(i);
  }
}

Status ModelRunner::RunLargestStep() {
  RETURN_IF_ERROR(AllocateKvCache(1, limits_.max_model_len));
  const int64_t tokens = limits_.max_num_batched_tokens;
  const int64_t length = std::min<int64_t>(tokens, limits_.max_model_len);
  BeginEmptyStep(std::min(tokens, length * limits_.max_num_seqs), length);
  SendInputs();
  RunModel();
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
  FinishStep();  // its tokens are this one's inputs
  ModelOutput* result = results_.Push();
  TakeIn(step);
  if (step.empty()) return OkStatus();
  LayOut(step);
  Flatten();
  SendInputs();
  if (graph_) {
    backend_->Replay(*graphs_[*graph_]);
    ++num_replays_;
  } else {
    RunModel();
  }
  DrawOnDevice(0);
  unfinished_ = result;
  return OkStatus();
}

Status ModelRunner::Collect(ModelOutput* result) {
  if (unfinished_ != nullptr && results_.IsOldest(unfinished_)) FinishStep();
  results_.Pop(result);
  return OkStatus();
}

void ModelRunner::FinishStep() {
  if (unfinished_ == nullptr) return;
  const auto total = static_cast<int64_t>(logits_rows_.size());
  for (int64_t begin = 0; begin < total; begin += max_logits_rows_) {
    if (begin > 0) {
      RunLogits(begin);
      DrawOnDevice(begin);
    }
    FillOnHost(begin);
  }
  TakeDrawn();
  FoldBack(std::exchange(unfinished_, nullptr));
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

// Where the step's tokens stand, one request after another, and which rows make logits.
void ModelRunner::LayOut(const SchedulerOutput& step) {
  CHECK_LE(step.num_scheduled_tokens, limits_.max_num_batched_tokens);
  CHECK_LE(step.requests.size(), static_cast<size_t>(limits_.max_num_seqs));
  requests_.assign(step.requests.begin(), step.requests.end());
  query_start_.assign(1, 0);
  context_len_.clear();
  logits_rows_.clear();
  drawn_request_idx_.clear();
  max_blocks_ = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    const ScheduledRequest& request = requests_[i];
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
  if (num_tokens_ != static_cast<int64_t>(requests_.size())) return false;
  if (logits_rows_.size() != requests_.size()) return false;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].num_scheduled_tokens != 1) return false;
    if (logits_rows_[i].token_row != static_cast<int32_t>(i)) return false;
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
  const auto num_requests = static_cast<int64_t>(requests_.size());
  graph_.reset();
  if (!graphs_.empty() && IsUniformDecode()) graph_ = GraphSizeFor(graph_sizes_, num_requests);
  if (graph_) {
    const int64_t size = graph_sizes_[*graph_];
    BeginInputs(size, size, size);
    Pad(num_requests, size);
  } else {
    BeginInputs(num_tokens_, num_requests, static_cast<int64_t>(logits_rows_.size()));
  }
  const StepInputs::Views& host = inputs_.host();
  auto* token_ids = host.token_ids.Data<int32_t>();
  auto* positions = host.positions.Data<int32_t>();
  auto* slots = host.slots.Data<int32_t>();
  int32_t t = 0;
  for (int64_t i = 0; i < num_requests; ++i) {
    const ScheduledRequest& request = requests_[static_cast<size_t>(i)];
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
  for (size_t i = 0; i < logits_rows_.size(); ++i) {
    host.logits_rows.Data<int32_t>()[i] = logits_rows_[i].token_row;
  }
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

// The layers and the first logits.
void ModelRunner::RunModel() {
  model_->Forward(
      {.token_ids = inputs_.device().token_ids, .plan = plan_.get(), .kv_cache = kv_cache_.get()});
  RunLogits(0);
}

void ModelRunner::RunLogits(int64_t begin) {
  const Tensor& rows = inputs_.device().logits_rows;
  const int64_t count = std::min(max_logits_rows_, rows.rows() - begin);
  if (count == 0) return;
  model_->Logits(logits_.device().Rows(0, count), rows.Rows(begin, count));
}

std::span<ModelRunner::LogitsRow> ModelRunner::ChunkFrom(int64_t begin) {
  const auto total = static_cast<int64_t>(logits_rows_.size());
  return std::span(logits_rows_)
      .subspan(static_cast<size_t>(begin),
               static_cast<size_t>(std::min(max_logits_rows_, total - begin)));
}

void ModelRunner::DrawOnDevice(int64_t begin) {
  draw_rows_.clear();
  const auto first = static_cast<int64_t>(drawn_request_idx_.size());
  const std::span<const LogitsRow> chunk = ChunkFrom(begin);
  for (size_t i = 0; i < chunk.size(); ++i) {
    if (!chunk[i].on_device) continue;
    const RequestSlot slot = requests_[static_cast<size_t>(chunk[i].request_idx)].slot;
    const InputBatch::Row& row = batch_.row(slot);
    draw_rows_.push_back({.logits_row = static_cast<int32_t>(i),
                          .slot = Index(slot),
                          .position = row.num_tokens,
                          .num_outputs = row.num_tokens - row.num_prompt_tokens});
    drawn_request_idx_.push_back(chunk[i].request_idx);
  }
  if (draw_rows_.empty()) return;
  sampler_->Draw(logits_.device().Rows(0, static_cast<int64_t>(chunk.size())), draw_rows_, first);
}

void ModelRunner::FillOnHost(int64_t begin) {
  host_rows_.clear();
  const std::span<LogitsRow> chunk = ChunkFrom(begin);
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
void ModelRunner::FillRow(std::span<float> logits, LogitsRow* row, SamplerScratch* scratch) {
  const auto request_idx = static_cast<size_t>(row->request_idx);
  const RequestSlot slot = requests_[request_idx].slot;
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
void ModelRunner::FoldBack(ModelOutput* result) {
  auto logits_row = logits_rows_.begin();  // in the order of the requests
  for (size_t i = 0; i < requests_.size(); ++i) {
    const ScheduledRequest& request = requests_[i];
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
