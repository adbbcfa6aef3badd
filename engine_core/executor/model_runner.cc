#include "engine_core/executor/model_runner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine_core/models/rank_share.h"

namespace tandem {
namespace {

// Logits are made in chunks of rows, so that a large batch over a large vocabulary stays bounded.
constexpr int64_t kMaxLogitsBytes = int64_t{256} << 20;
// Rows of drafts that are made together with those of the requests.
constexpr int64_t kMostDraftRows = 64;

int64_t MaxLogitsRows(const ExecutorLimits& limits) {
  const int64_t fitting = kMaxLogitsBytes / (int64_t{limits.vocab_size} * int64_t{sizeof(float)});
  const int64_t num_drafts = int64_t{limits.max_num_seqs} * limits.drafts.num_speculative_tokens;
  return std::clamp<int64_t>(fitting, 1,
                             limits.max_num_seqs + std::min(num_drafts, kMostDraftRows));
}

}  // namespace

KvCacheSpec KvSpecOf(const ModelConfig& config, int32_t block_size, int64_t num_blocks,
                     KvFormat format) {
  return {.num_layers = static_cast<int>(config.num_layers),
          .num_kv_heads = static_cast<int>(HeadsOf(config).kv_heads.count),
          .head_dim = static_cast<int>(config.head_dim),
          .block_size = block_size,
          .num_blocks = num_blocks,
          .format = format};
}

AttentionShape AttentionShapeOf(const ModelConfig& config) {
  return HeadsOf(config).attention_shape();
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
             !backend_->device().memory_is_host()),
      graphs_(&backend_->device(), options.graph_sizes,
              std::min<int64_t>(limits_.max_num_seqs, MaxLogitsRows(limits_))) {
  if (!options.speculation.drafts()) return;
  CHECK(backend_->device().memory_is_host()) << "drafts are not built for devices";
  CHECK_EQ(limits_.drafts.num_speculative_tokens, options.speculation.num_speculative_tokens);
  drafts_.emplace(options.speculation, &batch_, options.process_seed);
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
  ASSIGN_OR_RETURN(inputs_, StepInputs::Create(&backend_->device(),
                                               {.num_tokens = tokens,
                                                .num_requests = seqs,
                                                .num_logits_rows = tokens,
                                                .attention_work = plan_->WorkSize(tokens, seqs),
                                                .table_columns = batch_.max_blocks_per_request()}));
  if (limits_.hidden_size > 0) {
    ASSIGN_OR_RETURN(embedded_,
                     EmbeddedInputs::Create(&backend_->device(), tokens, limits_.hidden_size));
  }
  ASSIGN_OR_RETURN(sampler_,
                   StepSampler::Create(backend_.get(), MaxLogitsRows(limits_), tokens, &batch_));
  for (StepInFlight& step : steps_) {
    step.layout.Reserve(seqs);
    step.samples.requests.reserve(static_cast<size_t>(seqs));
    step.samples.prompt_nans.reserve(static_cast<size_t>(seqs));
  }
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

Status ModelRunner::RunFirstSteps() {
  constexpr int64_t kFewest = 32;  // smaller ones are met by the graphs
  RETURN_IF_ERROR(AllocateKvCache(1, limits_.max_model_len));
  const int64_t seqs = limits_.max_num_seqs;
  const int64_t most =
      std::min(int64_t{limits_.max_num_batched_tokens}, seqs * int64_t{limits_.max_model_len});
  const auto run = [&](int64_t num_tokens) {
    SendPadding(num_tokens, (num_tokens + seqs - 1) / seqs);
    RunModel();
  };
  run(most);
  RETURN_IF_ERROR(backend_->device().status());
  for (int64_t size = int64_t{1} << 20; size >= kFewest; size /= 2) {
    if (size < most) run(size);
    if (size / 4 * 3 < most && size / 4 * 3 >= kFewest) run(size / 4 * 3);
  }
  backend_->device().WaitFor(backend_->device().SetMark());
  kv_cache_.reset();
  return OkStatus();
}

void ModelRunner::MeasureSteps() {
  if (!drafts_) return;
  std::vector<StepCost::Point> points;
  for (const int32_t num_rows : {1, 2, 4, 8, 16, 32}) {
    if (num_rows > std::min<int64_t>(limits_.max_num_batched_tokens, limits_.max_model_len)) break;
    // The first of each size may touch memory that no step has touched before.
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 2; ++i) {
      const double begin = host_clock_.Monotonic();
      SendPadding(num_rows, num_rows);
      RunModel();
      least = std::min(least, host_clock_.Monotonic() - begin);
    }
    points.push_back({num_rows, least});
  }
  drafts_->SetCost(StepCost(std::move(points)));
}

Status ModelRunner::CaptureGraphs() {
  return graphs_.Capture([this](int64_t size) { SendPadding(size, 1); }, [this] { RunModel(); });
}

void ModelRunner::SendPadding(int64_t num_tokens, int64_t tokens_per_request) {
  newest_->layout.LayOutPadding(num_tokens, tokens_per_request,
                                std::min(num_tokens, sampler_->max_logits_rows()),
                                limits_.block_size);
  SendInputs(newest_->layout);
}

// ---- steps ----

Status ModelRunner::Submit(const SchedulerOutput& step) {
  if (MustFinishFirst(step)) FinishStep(newest_);
  ModelOutput* result = results_.Push();
  TakeIn(step);
  if (step.empty()) return OkStatus();
  if (newest_->result != nullptr) ++num_overlapped_;
  newest_ = newest_ == &steps_[0] ? &steps_[1] : &steps_[0];
  CHECK(newest_->result == nullptr);
  newest_->result = result;
  const double begin = host_clock_.Monotonic();
  StepLayout& layout = newest_->layout;
  layout.LayOut(step, batch_);
  sampler_->Begin(layout, &newest_->samples);
  const bool samples_later = backend_->device().memory_is_host();
  if (!samples_later) sampler_->TakeMasks(step, &newest_->samples);
  embedded_.Fill(layout, batch_);
  // Graphs read token ids alone.
  const DecodeGraphs::Graph* graph = embedded_.rows().empty() ? graphs_.Find(layout) : nullptr;
  if (graph != nullptr) layout.PadTo(graph->size);
  SendInputs(layout);
  clock_.Begin(&newest_->times);
  if (graph != nullptr) {
    graphs_.Replay(*graph);
  } else {
    RunModel();
  }
  if (samples_later) sampler_->TakeMasks(step, &newest_->samples);
  if (!layout.has_host_rows) {
    const int64_t count = layout.num_logits_rows(), chunk = sampler_->max_logits_rows();
    for (int64_t first = chunk; first < count; first += chunk) RunLogits(first);
    clock_.End(&newest_->times);
    sampler_->StartFetch(layout);
  }
  sampler_->AppendUnknownTokens(layout, newest_->samples);
  newest_->seconds = host_clock_.Monotonic() - begin;
  return backend_->device().status();
}

bool ModelRunner::MustFinishFirst(const SchedulerOutput& step) const {
  if (newest_->result == nullptr) return false;
  if (newest_->layout.has_host_rows) return true;
  // Its logprobs of a prompt are kept in the request's row.
  return std::ranges::any_of(step.freed_slots, [this](RequestSlot slot) {
    return batch_.row(slot).prompt_logprobs.has_value();
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
  const double begin = host_clock_.Monotonic();
  if (step->layout.has_host_rows) {
    CHECK(step == newest_) << "its logits are gone";
    const int64_t count = step->layout.num_logits_rows(), chunk = sampler_->max_logits_rows();
    for (int64_t first = 0; first < count; first += chunk) {
      if (first > 0) RunLogits(first);
      sampler_->SampleOnHost(step->layout, first, &step->samples);
    }
    clock_.End(&step->times);
    sampler_->StartFetch(step->layout);
  }
  sampler_->TakeFetched(step->layout, &step->samples);
  clock_.Add(step->times);
  sampler_->Fold(step->layout, &step->samples, step->result);
  if (drafts_) {
    drafts_->Fold(step->layout, step->samples, step->result);
    drafts_->Observe(step->layout, step->seconds + host_clock_.Monotonic() - begin);
  }
  step->result = nullptr;
}

// Frees, admissions and new blocks, before anything runs.
void ModelRunner::TakeIn(const SchedulerOutput& step) {
  for (const RequestSlot slot : step.freed_slots) {
    batch_.Remove(slot);
    if (drafts_) drafts_->Remove(slot);
  }
  for (const AdmittedRequest& admitted : step.admitted) {
    const ScheduledRequest& request = step.requests[static_cast<size_t>(admitted.request_idx)];
    batch_.Admit(request.slot, admitted, request.num_computed_tokens);
    sampler_->Admit(request.slot);
    if (drafts_) drafts_->Admit(request.slot);
  }
  for (const ScheduledRequest& request : step.requests) {
    batch_.AppendBlocks(request.slot, step.NewBlocks(request));
  }
  if (drafts_) drafts_->Place(step);
}

void ModelRunner::SendInputs(const StepLayout& layout) {
  inputs_.Begin({.num_tokens = layout.num_tokens(),
                 .num_requests = layout.num_requests(),
                 .num_logits_rows = layout.num_logits_rows(),
                 .attention_work = plan_->WorkSize(layout.num_tokens(), layout.num_requests()),
                 .table_columns = layout.max_blocks});
  const StepInputs::Views &host = inputs_.host(), &device = inputs_.device();
  inputs_.Fill(layout, batch_);
  sampler_->FillRows(layout, host.sampling_rows);
  AttentionBatch attention;
  attention.query_start = layout.query_start;
  attention.context_len = layout.context_len;
  attention.positions = device.positions;
  attention.slot_mapping = device.slots;
  attention.block_table = device.block_table;
  if (host.attention_work.rows() > 0) {
    attention.host_work = host.attention_work;
    attention.work = device.attention_work;
  }
  plan_->Fill(attention);
  inputs_.Send();
}

void ModelRunner::RunModel() {
  const Tensor& token_ids = inputs_.device().token_ids;
  sampler_->FillSampledInputs(token_ids);
  model_->Forward({.token_ids = token_ids,
                   .embedded = embedded_.rows(),
                   .plan = plan_.get(),
                   .kv_cache = kv_cache_.get()});
  embedded_.SetSent();
  RunLogits(0);
}

void ModelRunner::RunLogits(int64_t first) {
  const StepInputs::Views& inputs = inputs_.device();
  const int64_t count = std::min(sampler_->max_logits_rows(), inputs.logits_rows.rows() - first);
  if (count == 0) return;
  const Tensor logits = sampler_->logits(count);
  model_->Logits(logits, inputs.logits_rows.Rows(first, count));
  sampler_->SampleOnDevice(logits, inputs.sampling_rows.Rows(first, count), first);
}

}  // namespace tandem
