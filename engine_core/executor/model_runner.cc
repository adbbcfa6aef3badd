#include "engine_core/executor/model_runner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine_core/executor/head_drafter.h"
#include "engine_core/executor/medusa_drafter.h"
#include "engine_core/executor/model_drafter.h"

namespace tandem {
namespace {

RankPlace PlaceOf(const RankGroup* ranks) {
  return ranks == nullptr ? RankPlace() : ranks->place();
}

}  // namespace

ModelRunner::ModelRunner(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model,
                         const ModelConfig& config, const ModelRunnerOptions& options)
    : limits_(options.limits),
      backend_(std::move(backend)),
      kv_spec_(KvSpecOf(config, limits_.block_size, 0, options.kv_format, PlaceOf(options.ranks),
                        limits_.groups)),
      kv_places_(limits_.groups.count() > 1 ? KvPlacesOf(config, PlaceOf(options.ranks).stage)
                                            : std::vector<KvPlace>()),
      attention_shape_(AttentionShapeOf(config, PlaceOf(options.ranks).share)),
      model_(std::move(model)),
      batch_(limits_,
             {.vocab_size = limits_.vocab_size,
              .max_logprobs = options.max_logprobs,
              .logprobs_mode = options.logprobs_mode,
              .process_seed = options.process_seed},
             !backend_->device().memory_is_host()),
      graphs_(&backend_->device(), options.graph_sizes,
              std::min(int64_t{limits_.max_num_seqs}, ModelLimitsOf(limits_).max_logits_rows)),
      adapted_graphs_(
          &backend_->device(), options.graph_sizes,
          std::min(int64_t{limits_.max_num_seqs}, ModelLimitsOf(limits_).max_logits_rows)),
      has_states_(config.recurrent.num_layers() > 0),
      has_adapters_(options.adapters.sites != nullptr),
      hidden_size_(config.hidden_size),
      num_token_types_(config.num_token_types),
      ranks_(options.ranks),
      sends_images_(limits_.images && !backend_->device().memory_is_host()),
      reads_ring_(ranks_ != nullptr && backend_->device().memory_is_host()),
      runs_late_(PlaceOf(options.ranks).stage.size > 1),
      shares_kv_cache_(options.shares_kv_cache),
      graph_sizes_(options.graph_sizes) {
  CHECK_LE(limits_.max_steps_in_flight, kMaxStepsInFlight);
  CHECK(reads_ring_ || !runs_late_) << "pipelines are not built for devices";
  CHECK(limits_.groups.count() == 1 ||
        ((backend_->device().memory_is_host() || limits_.groups.has_states) &&
         !options.speculation.has_model()))
      << "groups of layers are not built for these";
}

StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(std::unique_ptr<Backend> backend,
                                                           std::unique_ptr<Model> model,
                                                           const ModelConfig& config,
                                                           const ModelRunnerOptions& options,
                                                           DraftModel draft) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<ModelRunner> runner,
      CreateWithoutCache(std::move(backend), std::move(model), config, options, std::move(draft)));
  if (!options.graph_sizes.empty()) RETURN_IF_ERROR(runner->RunFirstSteps());
  RETURN_IF_ERROR(runner->AllocateKvCache(options.limits.num_blocks, options.limits.max_model_len));
  RETURN_IF_ERROR(runner->CaptureGraphs());
  return runner;
}

StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::CreateWithoutCache(
    std::unique_ptr<Backend> backend, std::unique_ptr<Model> model, const ModelConfig& config,
    const ModelRunnerOptions& options, DraftModel draft) {
  std::unique_ptr<ModelRunner> runner(
      new ModelRunner(std::move(backend), std::move(model), config, options));
  RETURN_IF_ERROR(runner->Allocate(options.pooler_head));
  if (options.adapters.sites != nullptr) {
    ASSIGN_OR_RETURN(runner->places_,
                     AdapterPlaces::Create(runner->backend_.get(), options.adapters));
  }
  if (options.speculation.drafts()) {
    RETURN_IF_ERROR(runner->MakeDrafts(options, std::move(draft)));
  }
  return runner;
}

Status ModelRunner::MakeDrafts(const ModelRunnerOptions& options, DraftModel draft) {
  CHECK_EQ(limits_.drafts.num_speculative_tokens, options.speculation.num_speculative_tokens);
  std::unique_ptr<PassDrafter> drafter;
  if (draft.model != nullptr) {
    ASSIGN_OR_RETURN(drafter, ModelDrafter::Create(backend_.get(), std::move(draft),
                                                   options.kv_format, &batch_));
  } else if (draft.head != nullptr) {
    ASSIGN_OR_RETURN(
        drafter, HeadDrafter::Create(backend_.get(), std::move(draft), options.kv_format, &batch_,
                                     /*gets_room=*/runs_late_));
  } else if (draft.medusa != nullptr) {
    ASSIGN_OR_RETURN(drafter, MedusaDrafter::Create(backend_.get(), std::move(draft),
                                                    options.kv_format, &batch_));
  }
  drafts_.emplace(
      options.speculation, &batch_, std::move(drafter),
      has_states_ ? ModelLimitsOf(limits_).max_drafts : int64_t{limits_.max_num_batched_tokens},
      options.process_seed);
  for (StepInFlight& taken : taken_) taken.layout.Reserve(limits_.max_num_seqs);
  return OkStatus();
}

Status ModelRunner::Allocate(PoolerHead head) {
  const int64_t tokens = limits_.max_num_batched_tokens, seqs = limits_.max_num_seqs;
  AddStates(kv_spec_, &attention_shape_);
  ASSIGN_OR_RETURN(
      plans_, GroupPlans::Create(backend_.get(), attention_shape_, limits_.groups, tokens, seqs));
  ASSIGN_OR_RETURN(inputs_, StepInputs::Create(&backend_->device(),
                                               {.num_tokens = tokens,
                                                .num_requests = seqs,
                                                .num_logits_rows = tokens,
                                                .attention_work = plans_.WorkSize(tokens, seqs),
                                                .table_columns = batch_.max_blocks_per_request(),
                                                .num_groups = limits_.groups.count(),
                                                .has_adapters = has_adapters_,
                                                .has_token_types = limits_.pooling.has_value(),
                                                .has_mrope = sends_images_,
                                                .has_last_seen = sends_images_}));
  if (limits_.hidden_size > 0) {
    ASSIGN_OR_RETURN(embedded_,
                     EmbeddedInputs::Create(&backend_->device(), tokens, limits_.hidden_size));
  }
  if (limits_.pooling) {
    ASSIGN_OR_RETURN(pooler_, Pooler::Create(backend_.get(), *limits_.pooling, std::move(head),
                                             limits_, hidden_size_, num_token_types_));
  } else {
    ASSIGN_OR_RETURN(sampler_,
                     StepSampler::Create(backend_.get(), ModelLimitsOf(limits_).max_logits_rows,
                                         tokens, &batch_));
  }
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
  if (shares_kv_cache_) RETURN_IF_ERROR(ranks_->PlaceKvCache(ranks_->rank(), *kv_cache_));
  if (drafts_) RETURN_IF_ERROR(drafts_->AllocateKvCache(num_blocks));
  if (ranks_ != nullptr) ranks_->PublishKvCache(num_blocks, kv_cache_->numbers_per_block());
  return OkStatus();
}

StatusOr<std::unique_ptr<KvCache>> ModelRunner::MapKvCacheOf(int rank, KvCacheSpec spec) {
  CHECK(shares_kv_cache_ && rank != ranks_->rank());
  spec.num_blocks = kv_spec_.num_blocks;
  ASSIGN_OR_RETURN(std::unique_ptr<KvCache> cache, backend_->AllocateKvCache(spec));
  RETURN_IF_ERROR(ranks_->PlaceKvCache(rank, *cache));
  return cache;
}

void ModelRunner::SetTower(std::unique_ptr<VisionTower> tower) {
  CHECK(limits_.images && (ranks_ == nullptr || !sends_images_))
      << "towers are not built for these";
  images_.emplace(&backend_->device(), std::move(tower), *limits_.images, hidden_size_);
}

// ---- sleep ----

void ModelRunner::SetSource(std::unique_ptr<ModelSource> source, DraftSource draft_source) {
  CHECK(backend_->device().memory_is_host()) << "sleep is not built for devices";
  CHECK_EQ(draft_source != nullptr, drafts_ && drafts_->has_model());
  source_ = std::move(source);
  draft_source_ = std::move(draft_source);
}

Status ModelRunner::Release(const MemoryParts& parts, bool rereads) {
  if (source_ == nullptr) return Executor::Release(parts, rereads);
  if (parts.kv_cache && kv_cache_ != nullptr) {
    kv_cache_.reset();
    if (drafts_) drafts_->ReleaseKvCache();
    if (ranks_ != nullptr) ranks_->PublishKvCache(/*num_blocks=*/0, /*numbers_per_block=*/1);
  }
  return parts.weights ? ReleaseWeights(rereads) : OkStatus();
}

Status ModelRunner::ReleaseWeights(bool rereads) {
  rereads_ |= rereads;
  if (ranks_ != nullptr) {
    ranks_->PublishWeights(rereads_ ? WeightsChange::kForget : WeightsChange::kRelease);
  }
  if (draft_source_) drafts_->SetModel({});
  model_.reset();
  if (images_) images_->SetTower(nullptr);
  if (rereads_) source_->Close();
  if (ranks_ == nullptr) return OkStatus();
  RETURN_IF_ERROR(ranks_->communicator()->ForgetTensors());
  return ranks_->AwaitWeights();
}

Status ModelRunner::Restore(const MemoryParts& parts) {
  if (source_ == nullptr) return Executor::Restore(parts);
  if (parts.weights && model_ == nullptr) RETURN_IF_ERROR(LoadWeights());
  if (!parts.kv_cache || kv_cache_ != nullptr) return OkStatus();
  return AllocateKvCache(limits_.num_blocks, limits_.max_model_len);
}

Status ModelRunner::LoadWeights() {
  if (ranks_ != nullptr) ranks_->PublishWeights(WeightsChange::kLoad);
  StatusOr<std::unique_ptr<Model>> model = source_->Load(backend_.get());
  Status loaded = model.status();
  if (ranks_ != nullptr) {
    const Status others = ranks_->AwaitWeights();
    if (loaded.ok()) loaded = others;
  }
  if (loaded.ok() && images_) {
    auto tower = source_->LoadTower(backend_.get());
    loaded = tower.status();
    if (tower.ok()) images_->SetTower(*std::move(tower));
  }
  if (loaded.ok() && draft_source_) {
    StatusOr<DraftModel> draft = draft_source_(**model, backend_.get());
    loaded = draft.status();
    if (draft.ok()) drafts_->SetModel(*std::move(draft));
  }
  if (loaded.ok()) {
    model_ = *std::move(model);
    rereads_ = false;
    return OkStatus();
  }
  // The next attempt begins where this one did: with the files that were kept, or with what the
  // folder has then.
  if (model.ok()) model_ = *std::move(model);
  (void)ReleaseWeights(rereads_);
  return loaded;
}

// ---- before the first step ----

Status ModelRunner::RunFirstSteps() {
  constexpr int64_t kFewest = 32;  // smaller ones are met by the graphs
  RETURN_IF_ERROR(AllocateKvCache(1, limits_.max_model_len));
  const int64_t seqs = limits_.max_num_seqs;
  const int64_t most =
      std::min(int64_t{limits_.max_num_batched_tokens}, seqs * int64_t{limits_.max_model_len});
  const auto run = [&](int64_t num_tokens) {
    SendPadding(num_tokens, (num_tokens + seqs - 1) / seqs, places_ != nullptr);
    RunModel(*newest_);
  };
  run(most);
  if (drafts_) drafts_->RunLargest();
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
  for (const int32_t num_rows : kMeasuredRows) {
    if (num_rows > std::min<int64_t>(limits_.max_num_batched_tokens, limits_.max_model_len)) break;
    // The first of each size may touch memory that no step has touched before.
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 2; ++i) {
      const double begin = host_clock_.Monotonic();
      SendPadding(num_rows, num_rows, /*is_adapted=*/false);
      RunModel(*newest_);
      backend_->device().WaitFor(backend_->device().SetMark());
      least = std::min(least, host_clock_.Monotonic() - begin);
    }
    points.push_back({num_rows, least});
  }
  drafts_->Measure(StepCost(std::move(points)));
}

Status ModelRunner::CaptureGraphs() {
  const auto run = [this] { RunModel(*newest_); };
  const auto send = [this](bool is_adapted) {
    return
        [this, is_adapted](int64_t size) { SendPadding(size, 1, is_adapted, StepMode::kCapture); };
  };
  RETURN_IF_ERROR(graphs_.Capture(send(false), run));
  if (drafts_) RETURN_IF_ERROR(drafts_->CaptureGraphs(graph_sizes_));
  if (places_ == nullptr) return OkStatus();
  return adapted_graphs_.Capture(send(true), run);
}

void ModelRunner::SendPadding(int64_t num_tokens, int64_t tokens_per_request, bool is_adapted,
                              StepMode mode) {
  newest_->layout.LayOutPadding(num_tokens, tokens_per_request,
                                pooler_ ? 0 : std::min(num_tokens, sampler_->max_logits_rows()),
                                limits_.block_size);
  newest_->layout.is_adapted = is_adapted;
  SendInputs(newest_, mode);
}

// ---- steps ----

Status ModelRunner::Submit(const SchedulerOutput& step) {
  if (MustFinishFirst(step)) FinishAll();
  ModelOutput* result = results_.Push();
  TakeIn(step);
  if (images_) RETURN_IF_ERROR(images_->TakeIn(step));
  if (step.empty()) {
    if (step.encoder_inputs.empty()) return OkStatus();
    // How long slices take is learned from steps.
    backend_->device().WaitFor(backend_->device().SetMark());
    return backend_->device().status();
  }
  if (newest_->result != nullptr) ++num_overlapped_;
  newest_ = newest_ == &steps_[limits_.max_steps_in_flight - 1] ? &steps_[0] : newest_ + 1;
  CHECK(newest_->result == nullptr);
  newest_->result = result;
  const double begin = host_clock_.Monotonic();
  StepLayout& layout = newest_->layout;
  layout.LayOut(step, batch_);
  if (places_ != nullptr) places_->Place(&layout);
  if (pooler_ != nullptr) return SubmitPooled();
  sampler_->Begin(layout, &newest_->samples);
  const bool samples_later = backend_->device().memory_is_host();
  if (!samples_later) sampler_->TakeMasks(step, &newest_->samples);
  FillRows(layout);
  // Graphs read token ids alone.
  DecodeGraphs& graphs = layout.is_adapted ? adapted_graphs_ : graphs_;
  const DecodeGraphs::Graph* graph = embedded_rows_.empty() ? graphs.Find(layout) : nullptr;
  if (graph != nullptr) layout.PadTo(graph->size);
  SendInputs(newest_, graph != nullptr ? StepMode::kReplay : StepMode::kRun);
  clock_.Begin(&newest_->times);
  if (graph != nullptr) {
    graphs.Replay(*graph);
  } else if (!runs_late_) {
    RunModel(*newest_);
  }
  if (samples_later) sampler_->TakeMasks(step, &newest_->samples);
  if (!layout.has_host_rows) {
    const int64_t count = layout.num_logits_rows(), chunk = sampler_->max_logits_rows();
    for (int64_t first = chunk; first < count; first += chunk) RunLogits(*newest_, first);
    clock_.End(&newest_->times);
    sampler_->StartFetch(layout);
  }
  sampler_->AppendUnknownTokens(layout, newest_->samples);
  newest_->seconds = host_clock_.Monotonic() - begin;
  return status();
}

void ModelRunner::FillRows(const StepLayout& layout) {
  embedded_.Fill(layout, batch_);
  embedded_rows_.assign(embedded_.rows().begin(), embedded_.rows().end());
  if (images_) images_->Fill(layout, batch_, &embedded_rows_);
  sees_ahead_ = sends_images_ && images_ && images_->sees_ahead();
}

StepRows ModelRunner::RowsOfNewest() const {
  StepRows rows = {.embedded = embedded_rows_};
  if (images_) rows.deepstack = images_->deepstack();
  if (sends_images_) {
    rows.mrope_positions = inputs_.device().mrope_positions;
    rows.last_seen = inputs_.device().last_seen;
  } else if (images_) {
    rows.mrope_positions = images_->mrope_positions();
    rows.last_seen = images_->last_seen();
  }
  return rows;
}

Status ModelRunner::SubmitPooled() {
  FillRows(newest_->layout);
  SendInputs(newest_, StepMode::kRun);
  if (!runs_late_) RunPooled(newest_);
  return status();
}

void ModelRunner::RunPooled(StepInFlight* step) {
  clock_.Begin(&step->times);
  RunModel(*step);
  pooler_->Run(step->layout, model_.get(), step->result);
  clock_.End(&step->times);
}

Status ModelRunner::status() const {
  if (ranks_ != nullptr) RETURN_IF_ERROR(ranks_->status());
  if (RankExchange* exchange = backend_->exchange()) RETURN_IF_ERROR(exchange->status());
  return backend_->device().status();
}

bool ModelRunner::MustFinishFirst(const SchedulerOutput& step) const {
  // A step that has not run yet has nothing in common with this one, unless a request of it has
  // ended early: another may get its row of the batch.
  if (runs_late_) {
    return std::ranges::any_of(steps_, [&](const StepInFlight& in_flight) {
      if (in_flight.result == nullptr) return false;
      return std::ranges::any_of(in_flight.layout.requests, [&](const ScheduledRequest& request) {
        return std::ranges::find(step.freed_slots, request.slot) != step.freed_slots.end();
      });
    });
  }
  if (newest_->result == nullptr || pooler_ != nullptr) return false;
  if (newest_->layout.has_host_rows || sampler_->verifies_on_device()) return true;
  if (drafts_ && drafts_->reads_states()) return true;
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
  return ranks_ == nullptr ? OkStatus() : status();
}

// Oldest first.
void ModelRunner::FinishAll() {
  const auto num_steps = static_cast<ptrdiff_t>(limits_.max_steps_in_flight);
  const ptrdiff_t newest = newest_ - steps_.data();
  for (ptrdiff_t i = 1; i <= num_steps; ++i) {
    StepInFlight& step = steps_[static_cast<size_t>((newest + i) % num_steps)];
    if (step.result != nullptr && (runs_late_ || &step == newest_)) FinishStep(&step);
  }
}

void ModelRunner::FinishStep(StepInFlight* step) {
  if (pooler_ != nullptr) {
    if (runs_late_) RunPooled(step);
    clock_.Add(step->times);
    step->result = nullptr;
    return;
  }
  const double begin = host_clock_.Monotonic();
  if (runs_late_) RunModel(*step);
  if (step->layout.has_host_rows) {
    CHECK(step == newest_ || runs_late_) << "its logits are gone";
    const int64_t count = step->layout.num_logits_rows(), chunk = sampler_->max_logits_rows();
    for (int64_t first = 0; first < count; first += chunk) {
      if (first > 0) RunLogits(*step, first);
      sampler_->SampleOnHost(step->layout, first, &step->samples);
    }
    clock_.End(&step->times);
    sampler_->StartFetch(step->layout);
  }
  sampler_->TakeFetched(step->layout, &step->samples);
  clock_.Add(step->times);
  sampler_->Fold(step->layout, &step->samples, step->result);
  RunTakenAfter(step->published.number);
  TakeInDrafts(*step);
  if (drafts_) {
    drafts_->Observe(step->layout, step->seconds + host_clock_.Monotonic() - begin);
    drafts_->Fold(step->layout, step->samples, step->result);
  }
  step->result = nullptr;
}

void ModelRunner::TakeInDrafts(const StepInFlight& step) {
  if (step.layout.num_drafts.empty() || !has_states_) return;
  StepInFlight& in_flight =
      taken_[ranks_ == nullptr ? 0 : static_cast<size_t>(ranks_->TurnOf(step.published.number))];
  CHECK_EQ(in_flight.runs_after, 0);
  StepLayout& taken = in_flight.layout;
  taken.Begin();
  int32_t draft = 0;  // of the step
  for (size_t i = 0; i < step.layout.requests.size(); ++i) {
    const ScheduledRequest& request = step.layout.requests[i];
    const int32_t num_accepted = step.samples.requests[i].num_tokens - 1;
    const int32_t end = request.num_computed_tokens + request.num_scheduled_tokens;
    if (num_accepted > 0) {
      taken.AddDrafts(batch_, request.slot, end - request.num_draft_tokens, num_accepted, draft);
    }
    draft += request.num_draft_tokens;
  }
  if (taken.requests.empty()) return;
  in_flight.published.number = step.published.number;
  SendInputs(&in_flight, StepMode::kTakeInDrafts);
  if (newest_->published.number == step.published.number) return RunTakenDrafts(in_flight);
  in_flight.runs_after = newest_->published.number;
}

void ModelRunner::RunTakenDrafts(const StepInFlight& taken) {
  const StepInputs::Views& inputs = InputsOf(taken);
  if (reads_ring_) plans_.Fill(inputs, taken.layout.lengths());
  model_->TakeInDrafts(inputs.logits_rows,
                       ranks_ == nullptr ? 0 : ranks_->TurnOf(taken.published.number));
}

// The oldest first, whose turn is the next one.
void ModelRunner::RunTakenAfter(int64_t step) {
  const int num_turns = ranks_ == nullptr ? 1 : ranks_->counts().pipeline;
  for (int i = 1; i < num_turns; ++i) {
    StepInFlight& taken = taken_[static_cast<size_t>(ranks_->TurnOf(step + i))];
    if (taken.runs_after == 0 || taken.runs_after > step) continue;
    RunTakenDrafts(taken);
    taken.runs_after = 0;
  }
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
    if (pooler_ == nullptr) {
      sampler_->Admit(request.slot);
    } else {
      CHECK(admitted.pooling_params != nullptr) << *admitted.request_id;
      pooler_->Admit(request.slot, *admitted.pooling_params);
    }
    if (drafts_) drafts_->Admit(request.slot, *admitted.sampling_params);
  }
  for (const ScheduledRequest& request : step.requests) {
    batch_.AppendBlocks(request.slot, step.NewBlocks(request));
    if (drafts_) drafts_->AppendBlocks(request, step.NewBlocks(request));
  }
  if (drafts_) drafts_->Place(step);
}

int64_t ModelRunner::TableColumns(const StepLayout& layout, StepMode mode) const {
  const bool is_captured = mode == StepMode::kCapture || mode == StepMode::kReplay;
  const bool is_fixed = is_captured && limits_.groups.count() > 1;
  return is_fixed ? batch_.max_blocks_per_request() : layout.max_blocks;
}

void ModelRunner::SendInputs(StepInFlight* step, StepMode mode) {
  const StepLayout& layout = step->layout;
  inputs_.Begin({.num_tokens = layout.num_tokens(),
                 .num_requests = layout.num_requests(),
                 .num_logits_rows = layout.num_logits_rows(),
                 .attention_work = plans_.WorkSize(layout.num_tokens(), layout.num_requests()),
                 .table_columns = TableColumns(layout, mode),
                 .num_groups = limits_.groups.count(),
                 .has_adapters = layout.is_adapted,
                 .has_token_types = num_token_types_ > 0,
                 .has_mrope = sends_images_ && limits_.images->have_positions,
                 .has_last_seen = mode == StepMode::kRun && sees_ahead_});
  inputs_.Fill(layout, batch_, kv_cache_->numbers_per_block());
  if (pooler_ == nullptr) {
    sampler_->FillRows(layout, inputs_.host().sampling_rows);
  } else if (num_token_types_ > 0) {
    pooler_->FillTokenTypes(layout, inputs_.host().token_types);
  }
  if (ranks_ != nullptr) {
    const StepRows rows = mode == StepMode::kRun ? RowsOfNewest() : StepRows();
    step->published = mode == StepMode::kTakeInDrafts
                          ? ranks_->PublishTakenDrafts(inputs_, layout, step->published.number)
                          : ranks_->PublishStep(inputs_, layout, rows, mode);
  }
  if (reads_ring_) return;
  plans_.Fill(inputs_, layout.lengths());
  inputs_.Send();
}

void ModelRunner::RunModel(const StepInFlight& step) {
  const StepInputs::Views& inputs = InputsOf(step);
  if (pooler_ == nullptr) sampler_->FillSampledInputs(inputs.token_ids);
  if (RankExchange* exchange = backend_->exchange()) exchange->ShareIds(inputs.token_ids);
  ModelStep model_step = {.token_ids = inputs.token_ids,
                          .token_types = inputs.token_types,
                          .plan = plans_.first(),
                          .other_plans = plans_.others(),
                          .kv_cache = kv_cache_.get(),
                          .kv_places = kv_places_};
  (reads_ring_ ? step.published.rows.view() : RowsOfNewest()).PutInto(&model_step);
  const StepAdapters adapters = {.slots = inputs.adapters,
                                 .adapters = step.layout.adapters,
                                 .table = places_ == nullptr ? nullptr : places_->table()};
  if (step.layout.is_adapted) model_step.adapters = &adapters;
  if (reads_ring_) {
    plans_.Fill(inputs, step.layout.lengths());
    model_step.hidden = ranks_->AwaitHidden(step.published.number, inputs.token_ids.rows());
    model_step.layer_inputs = ranks_->LayerInputsOf(step.published.number, inputs.token_ids.rows());
    model_step.turn = ranks_->TurnOf(step.published.number);
  }
  if (drafts_) model_step.taps = drafts_->Taps(inputs.token_ids.rows(), StatesRoom(step));
  model_->Forward(model_step);
  if (drafts_) drafts_->TakeStates(model_.get());
  embedded_.SetSent();
  if (pooler_ == nullptr) RunLogits(step, 0);
}

Tensor ModelRunner::StatesRoom(const StepInFlight& step) const {
  if (!runs_late_) return {};
  return ranks_->StatesOf(step.published.number, InputsOf(step).token_ids.rows(),
                          backend_->activation_dtype());
}

void ModelRunner::RunLogits(const StepInFlight& step, int64_t first) {
  const StepInputs::Views& inputs = InputsOf(step);
  const int64_t count = std::min(sampler_->max_logits_rows(), inputs.logits_rows.rows() - first);
  if (count == 0) return;
  const Tensor logits = sampler_->logits(count);
  model_->Logits(logits, inputs.logits_rows.Rows(first, count));
  sampler_->SampleOnDevice(logits, inputs.sampling_rows.Rows(first, count), first);
}

}  // namespace tandem
