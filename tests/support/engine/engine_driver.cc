#include "tests/support/engine/engine_driver.h"

#include <unistd.h>

#include <cstring>

#include "engine_core/executor/kv_cache_size.h"
#include "engine_core/executor/rank_runner.h"
#include "engine_core/models/registry.h"
#include "engine_core/weights/open_weights.h"
#include "proto_msgpack/codec.h"

namespace tandem {

std::unique_ptr<Backend> MakeTestBackend(bool reference, DType dtype, int num_threads) {
  if (reference) return MakeReferenceBackend();
  CpuBackendOptions options;
  options.dtype = dtype;
  options.num_threads = num_threads;
  auto backend = MakeCpuBackend(options);
  CHECK(backend.ok()) << backend.status().ToString();
  return *std::move(backend);
}

wire::SamplingParams GreedyParams(int32_t max_tokens) {
  wire::SamplingParams params;
  params.temperature = 0;
  params.max_tokens = max_tokens;
  params.ignore_eos = true;
  return params;
}

namespace {

// Appends each row as rows of its own.
void AppendRows(const wire::LogprobsRows& rows, Transcript* transcript) {
  const auto columns = static_cast<size_t>(rows.num_columns);
  for (size_t i = 0; i < static_cast<size_t>(rows.num_rows); ++i) {
    const auto begin = static_cast<ptrdiff_t>(i * columns);
    const auto end = begin + static_cast<ptrdiff_t>(columns);
    transcript->logprobs.push_back(rows.logprobs[i * columns]);
    transcript->rows.push_back(
        {.num_rows = 1,
         .num_columns = rows.num_columns,
         .token_ids = {rows.token_ids.begin() + begin, rows.token_ids.begin() + end},
         .logprobs = {rows.logprobs.begin() + begin, rows.logprobs.begin() + end},
         .ranks = {rows.ranks[i]}});
  }
}

DraftModel LoadTestDraft(const EngineDriverOptions& options, const ModelConfig& target_config,
                         const ModelRunnerOptions& runner, const Model& target, Backend* backend) {
  const auto config = ReadDraftModelConfig(target_config, options.speculation);
  CHECK(config.ok()) << config.status().ToString();
  auto weights = OpenSafetensors(options.speculation.model);
  CHECK(weights.ok()) << weights.status().ToString();
  std::unique_ptr<Weights> of_target;
  if (options.ranks.num_ranks() > 1) {
    of_target = OpenWeights(options.model_dir, "auto", target_config).value();
  }
  const DraftTarget of = {target, &target_config, of_target.get()};
  auto draft = LoadDraftModel(**config, options.speculation, runner.limits, options.formats, of,
                              weights->get(), backend);
  CHECK(draft.ok()) << draft.status().ToString();
  return *std::move(draft);
}

std::unique_ptr<Backend> MakeBackend(const EngineDriverOptions& options, int rank) {
  if (options.make_rank_backend) return options.make_rank_backend(rank);
  if (options.make_backend) return options.make_backend();
  return MakeTestBackend(options.reference_backend, options.dtype, options.num_threads);
}

// The model, or a rank's part of it.
std::unique_ptr<Model> LoadPart(const EngineDriverOptions& options, const ModelConfig& config,
                                const ExecutorLimits& limits, RankGroup* group, Backend* backend,
                                Weights* weights) {
  const ModelLimits model_limits = ModelLimitsOf(limits);
  LoadContext context = {config, model_limits, *weights, *backend, options.formats};
  context.kv_format = options.kv_format;
  context.adapter_sites = options.adapter_sites;
  context.makes_logits = !limits.pooling;
  if (group != nullptr) {
    context.stage = group->place().stage;
    context.share = group->place().share;
    context.splits_experts = options.splits_experts;
    if (context.share.size > 1) context.ranks = group->ExchangeOf(backend);
  }
  auto model = LoadModel(context);
  CHECK(model.ok()) << model.status().ToString();
  return *std::move(model);
}

std::unique_ptr<ModelSource> MakeSource(const EngineDriverOptions& options,
                                        const ModelConfig& config, const ExecutorLimits& limits,
                                        RankGroup* group) {
  return std::make_unique<ModelSource>(ModelSourceOptions{.path = options.model_dir,
                                                          .config = config,
                                                          .limits = ModelLimitsOf(limits),
                                                          .formats = options.formats,
                                                          .ranks = group,
                                                          .splits_experts = options.splits_experts,
                                                          .makes_logits = !limits.pooling});
}

// As an engine would. The cache stays as large, in smaller blocks.
void SetGroups(const ModelConfig& config, bool is_device, ExecutorLimits* limits) {
  if (config.is_bidirectional || config.is_uneven()) return;
  const LayerGroups groups = LayerGroupsOf(config);
  if (groups.count() > 1 && is_device && !groups.has_states) return;
  limits->groups = groups;
  limits->num_blocks *= groups.count();
}

}  // namespace

EngineDriver::~EngineDriver() {
  if (group_ != nullptr) group_->Abandon();
  for (std::thread& rank : other_ranks_) rank.join();
}

void EngineDriver::StartRanks(const EngineDriverOptions& options, const ModelConfig& config,
                              const ModelRunnerOptions& runner_options) {
  std::vector<int> state_layers;
  if (options.speculation.has_model()) {
    const auto draft = ReadDraftModelConfig(config, options.speculation).value();
    if (draft->eagle) state_layers = draft->eagle->state_layers;
  }
  const auto shape = RankGroupShape::Of(options.ranks, runner_options.limits, config,
                                        options.adapter_sites == nullptr ? 0 : options.max_loras,
                                        /*spins=*/50, state_layers);
  group_ = RankGroup::Create(shape).value();
  for (int rank = 0; rank < options.ranks.num_ranks(); ++rank) {
    if (rank == group_->rank()) continue;
    UniqueFd file(dup(group_->file()));
    OtherRank* part = rank_parts_.emplace_back(std::make_unique<OtherRank>()).get();
    EngineDriverOptions own = options;
    if (options.adapter_sites != nullptr) own.adapter_sites = &part->sites;
    auto loaded = std::make_shared<std::promise<void>>();
    is_loaded_.push_back(loaded->get_future());
    other_ranks_.emplace_back([=, options = std::move(own), file = std::move(file)]() mutable {
      const auto group = RankGroup::Open(std::move(file), rank).value();
      std::unique_ptr<Weights> opened;
      if (options.weights == nullptr) {
        opened = OpenWeights(options.model_dir, "auto", config).value();
      }
      Weights& weights = options.weights != nullptr ? *options.weights : *opened;
      auto backend = MakeBackend(options, rank);
      const Status joined = group->Join(backend.get());
      CHECK(joined.ok()) << joined.ToString();
      auto model =
          LoadPart(options, config, runner_options.limits, group.get(), backend.get(), &weights);
      const auto runner = RankRunner::Create(std::move(backend), std::move(model), config,
                                             runner_options, group.get());
      CHECK(runner.ok()) << runner.status().ToString();
      if (options.can_sleep) {
        (*runner)->SetSource(MakeSource(options, config, runner_options.limits, group.get()));
      }
      part->backend = &(*runner)->backend();
      (*runner)->SetAdapters(&part->adapters);
      loaded->set_value();
      const Status end = (*runner)->Run();
      CHECK(end.ok()) << end.ToString();
    });
  }
}

EngineDriver::EngineDriver(const EngineDriverOptions& options) {
  const auto config = ReadModelConfig(options.model_dir, options.hf_overrides);
  CHECK(config.ok()) << config.status().ToString();
  const auto pooling = ReadPoolerConfig(options.model_dir, options.pooling, options.hf_overrides);
  CHECK(pooling.ok()) << pooling.status().ToString();
  std::unique_ptr<Weights> opened;
  if (options.weights == nullptr) {
    auto files = OpenWeights(options.model_dir, "auto", *config);
    CHECK(files.ok()) << files.status().ToString();
    opened = *std::move(files);
  }
  Weights& weights = options.weights != nullptr ? *options.weights : *opened;
  ModelRunnerOptions runner_options;
  runner_options.limits = {.num_blocks = options.num_blocks,
                           .block_size = options.block_size,
                           .max_num_seqs = options.max_num_seqs,
                           .max_num_batched_tokens = options.max_num_batched_tokens,
                           .max_model_len = options.max_model_len,
                           .vocab_size = static_cast<int32_t>(config->vocab_size),
                           .hidden_size = static_cast<int32_t>(config->hidden_size)};
  const bool is_device = options.make_backend != nullptr || options.make_rank_backend != nullptr;
  if (options.gives_back_blocks && !options.speculation.has_model()) {
    SetGroups(*config, is_device, &runner_options.limits);
  }
  runner_options.limits.drafts.num_speculative_tokens = options.speculation.num_speculative_tokens;
  runner_options.limits.drafts.by_batch = options.speculation.by_batch;
  if (options.speculation.has_model()) {
    runner_options.limits.drafts.num_lookahead_tokens = options.speculation.num_speculative_tokens;
    runner_options.limits.drafts.num_input_slots = options.speculation.has_head() ? 0 : 1;
  }
  runner_options.limits.pooling = *pooling;
  if (options.takes_images && (!is_device || options.ranks.num_ranks() == 1)) {
    runner_options.limits.images = ImageLimitsOf(config->vision);
  }
  runner_options.speculation = options.speculation;
  runner_options.adapters = {.sites = options.adapter_sites,
                             .max_rank = options.max_lora_rank,
                             .max_in_step = options.max_loras};
  runner_options.kv_format = options.kv_format;
  runner_options.max_logprobs = -1;
  runner_options.graph_sizes = options.graph_sizes;
  runner_options.logprobs_mode = options.logprobs_mode;
  async_scheduling_ = options.async_scheduling;
  if (options.ranks.pipeline > 1) {
    async_scheduling_ = true;
    runner_options.limits.max_steps_in_flight = static_cast<size_t>(options.ranks.pipeline);
  }
  auto backend = MakeBackend(options, options.ranks.output_rank());
  if (options.ranks.num_ranks() > 1) {
    StartRanks(options, *config, runner_options);
    const Status joined = group_->Join(backend.get());
    CHECK(joined.ok()) << joined.ToString();
  }
  runner_options.ranks = group_.get();
  auto model =
      LoadPart(options, *config, runner_options.limits, group_.get(), backend.get(), &weights);
  if (*pooling) {
    auto head = PoolerHead::Load(options.model_dir, *config, **pooling, &weights);
    CHECK(head.ok()) << head.status().ToString();
    runner_options.pooler_head = *std::move(head);
  }
  DraftModel draft;
  if (options.speculation.has_model())
    draft = LoadTestDraft(options, *config, runner_options, *model, backend.get());
  std::unique_ptr<VisionTower> tower;
  if (runner_options.limits.images) {
    const ModelLimits limits = ModelLimitsOf(runner_options.limits);
    auto loaded = LoadVisionTower({*config, limits, weights, *backend, options.formats});
    CHECK(loaded.ok()) << loaded.status().ToString();
    tower = *std::move(loaded);
  }
  auto runner = ModelRunner::Create(std::move(backend), std::move(model), *config, runner_options,
                                    std::move(draft));
  CHECK(runner.ok()) << runner.status().ToString();
  runner_ = *std::move(runner);
  for (std::future<void>& loaded : is_loaded_) loaded.wait();
  if (tower != nullptr) runner_->SetTower(std::move(tower));
  if (options.can_sleep) {
    ModelRunner::DraftSource draft_source;
    if (options.speculation.has_model()) {
      draft_source = [options, config = *config, runner_options](const Model& target,
                                                                 Backend* own) {
        return StatusOr<DraftModel>(LoadTestDraft(options, config, runner_options, target, own));
      };
    }
    runner_->SetSource(MakeSource(options, *config, runner_options.limits, group_.get()),
                       std::move(draft_source));
  }

  KvCacheConfig cache;
  const bool needs_all_states = *pooling && (*pooling)->needs_all_states();
  cache.enable_prefix_caching = options.enable_prefix_caching && !needs_all_states;
  const SpeculativeConfig& speculation = options.speculation;
  cache.hashes_next_token = speculation.reads_next_token() && speculation.hashes_next_token;
  cache.drops_last_found_block = speculation.reads_next_token() && !speculation.hashes_next_token &&
                                 speculation.drops_last_found_block;
  kv_cache_ = std::make_unique<KvCacheManager>(CacheWithLimits(cache, runner_options.limits));
  SchedulerConfig scheduling;
  scheduling.max_num_batched_tokens = options.max_num_batched_tokens;
  scheduling.max_num_seqs = options.max_num_seqs;
  scheduling.max_model_len = options.max_model_len;
  scheduling.vocab_size = runner_options.limits.vocab_size;
  scheduling.drafts = runner_options.limits.drafts;
  scheduling.num_pipeline_steps = options.ranks.pipeline;
  scheduling.max_loras = options.adapter_sites == nullptr ? 0 : options.max_loras;
  scheduling.enable_chunked_prefill = !config->is_bidirectional;
  const auto& images = runner_options.limits.images;
  scheduling.encoder_cache_rows = images ? options.max_num_batched_tokens : 0;
  scheduling.needs_whole_images = options.needs_whole_images || (images && images->are_whole);
  if (options.slices_images) scheduling.image_time_limit.seconds = 1e-9;
  // Tiny pools are for preemption: admit what has room for its next tokens.
  scheduling.reserve_full_isl = false;
  scheduler_ = std::make_unique<Scheduler>(scheduling, kv_cache_.get());
}

void EngineDriver::Add(const std::string& id, std::vector<TokenId> prompt,
                       const wire::SamplingParams& params, int32_t num_prior_outputs,
                       const Adapter& adapter, std::shared_ptr<const RequestImages> images) {
  wire::EngineCoreRequest request;
  request.request_id = id;
  request.prompt_token_ids = std::move(prompt);
  request.sampling_params = params;
  request.own.num_prior_output_tokens = num_prior_outputs;
  const Status status =
      scheduler_->Add(std::move(request), now_, {.adapter = adapter, .images = std::move(images)});
  CHECK(status.ok()) << status.ToString();
}

void EngineDriver::AddPooled(const std::string& id, std::vector<TokenId> prompt,
                             const wire::PoolingParams& params) {
  wire::EngineCoreRequest request;
  request.request_id = id;
  request.prompt_token_ids = std::move(prompt);
  request.pooling_params = wire::Packed(params);
  const Status status = scheduler_->Add(std::move(request), now_);
  CHECK(status.ok()) << status.ToString();
}

bool EngineDriver::Step() {
  now_ += 1;
  const SchedulerOutput& step = scheduler_->Schedule(now_);
  const bool has_notices = in_flight_.empty() && scheduler_->pending_work() == Work::kNotices;
  if (step.has_work() || has_notices) {
    const Status status = runner_->Submit(step);
    CHECK(status.ok()) << status.ToString();
    in_flight_.push_back(&step);
  }
  if (in_flight_.empty()) return false;
  if (async_scheduling_ && !step.empty() &&
      in_flight_.size() < runner_->limits().max_steps_in_flight)
    return true;
  TakeResult();
  return true;
}

void EngineDriver::TakeResult() {
  const SchedulerOutput& step = *in_flight_.front();
  in_flight_.erase(in_flight_.begin());
  const Status status = runner_->Collect(&result_);
  CHECK(status.ok()) << status.ToString();
  scheduler_->Update(step, &result_, &outputs_);
  for (const Request* request : scheduler_->Waiting()) {
    transcripts_[request->id()].num_preemptions = request->num_preemptions;
  }
  std::vector<ClientMessage> messages;
  outputs_.Take(now_, &messages);
  for (ClientMessage& message : messages) {
    for (wire::EngineCoreOutput& output : message.outputs.outputs) {
      Transcript& transcript = transcripts_[output.request_id];
      for (const TokenId id : output.new_token_ids) transcript.token_ids.push_back(id);
      if (output.new_logprobs) AppendRows(*output.new_logprobs, &transcript);
      if (output.new_prompt_logprobs) transcript.prompt_logprobs = *output.new_prompt_logprobs;
      if (output.prefill_stats) {
        transcript.num_cached_tokens = output.prefill_stats->num_cached_tokens;
        transcript.has_prefill_stats = true;
      }
      if (output.pooling_output) {
        const auto tensor = wire::DecodeTensor(*output.pooling_output, {});
        CHECK(tensor.ok() && tensor->dtype == "float32") << output.request_id;
        transcript.pooled.resize(tensor->data.size() / sizeof(float));
        std::memcpy(transcript.pooled.data(), tensor->data.data(), tensor->data.size());
      }
      if (output.error) transcript.error = output.error->message;
      transcript.finished = transcript.finished || output.finished();
      if (output.finish_reason) transcript.finish_reason = output.finish_reason;
      if (output.finish_reason) transcript.stop_reason = output.stop_reason;
    }
    outputs_.Recycle(std::move(message.outputs));
  }
}

void EngineDriver::RunAll() {
  for (int step = 0; Step(); ++step) CHECK_LT(step, 100'000);
}

void RunTogether(EngineDriver* engine, const std::vector<TestRequest>& requests) {
  for (int32_t step = 0; step <= kLastArrivalStep; ++step) {
    for (const TestRequest& r : requests) {
      if (r.arrival_step == step) engine->Add(r.id, r.prompt, r.params);
    }
    engine->Step();
  }
  engine->RunAll();
}

}  // namespace tandem
