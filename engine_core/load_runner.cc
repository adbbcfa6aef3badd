#include "engine_core/load_runner.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/log.h"
#include "common/strings.h"
#include "engine_core/executor/draft_model.h"
#include "engine_core/executor/kv_cache_size.h"
#include "engine_core/executor/memory_plan.h"
#include "engine_core/models/registry.h"
#include "engine_core/weights/open_weights.h"
#include "engine_core/weights/packed_file.h"

namespace tandem {
namespace {

// device: of a rank that has one of its own.
StatusOr<std::unique_ptr<Backend>> MakeBackend(const EngineSetup& setup, int device) {
  if (setup.device == "reference") return MakeReferenceBackend();
  if (setup.device == "cuda") {
    return MakeCudaBackend({.dtype = setup.backend.dtype,
                            .num_threads = setup.backend.num_threads,
                            .attention = setup.attention,
                            .device = device,
                            .uses_peers = setup.uses_peers});
  }
  return MakeCpuBackend(setup.backend);
}

// The memory of the device that will hold the KV cache; of a host, this engine's share.
HostMemory ReadMemory(const Backend& backend, const EngineSetup& setup) {
  if (backend.device().memory_is_host()) {
    HostMemory memory = ReadHostMemory();
    memory.total_bytes /= setup.num_engines_of_host;
    // Not a share of what is free now: one that starts again has the room that it had.
    memory.available_bytes = std::min(memory.available_bytes, memory.total_bytes);
    return WithinAddressSpace(memory, ReadAddressSpace());
  }
  const DeviceMemory memory = backend.device().memory();
  return {.total_bytes = memory.total_bytes,
          .available_bytes = memory.free_bytes,
          .resident_bytes = memory.total_bytes - memory.free_bytes};
}

StatusOr<DraftModel> LoadDraft(const EngineConfig& config, const ModelConfig& model_config,
                               const EngineSetup& setup, const DraftModelConfig& draft_config,
                               const Model& target, Backend* backend) {
  const SpeculativeConfig& speculation = setup.runner.speculation;
  const auto seed = static_cast<uint64_t>(config.seed);
  std::unique_ptr<Weights> target_weights;
  if (draft_config.copies_tables) {
    ASSIGN_OR_RETURN(target_weights,
                     OpenWeights(config.model, config.load_format, model_config, seed));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Weights> weights,
                   OpenWeights(speculation.model, config.load_format, draft_config.config, seed));
  return LoadDraftModel(draft_config, speculation, setup.runner.limits, setup.formats,
                        {target, &model_config, target_weights.get()}, weights.get(), backend);
}

// Allocates the KV cache and captures graphs. On a device the cache gets what the largest step
// leaves free, which is measured by running it.
// other_bytes: what other processes hold of the model, and what adapters will take.
Status FinishRunner(int64_t bytes_per_block, int64_t other_bytes, ModelRunner* runner,
                    EngineSetup* setup, StartupLog* startup) {
  const bool is_device = !runner->backend().device().memory_is_host();
  RankGroup* ranks = setup->runner.ranks;
  if (is_device) {
    const int64_t free_before = runner->backend().device().memory().free_bytes;
    RETURN_IF_ERROR(runner->RunFirstSteps());
    const DeviceMemory after = runner->backend().device().memory();
    startup->Done("first steps",
                  "up to " + WithCommas(setup->runner.limits.max_num_batched_tokens) +
                      " tokens, keeps " + WithCommas((free_before - after.free_bytes) >> 20) +
                      " MiB; " + WithCommas(after.free_bytes >> 20) + " of " +
                      WithCommas(after.total_bytes >> 20) + " MiB are free");
  }
  HostMemory memory = ReadMemory(runner->backend(), *setup);
  memory.resident_bytes += other_bytes;
  if (is_device && ranks != nullptr) {
    // All ranks have as many blocks: what the fullest device has room for.
    ASSIGN_OR_RETURN(const int64_t least, ranks->LeastFreeBytes());
    memory.available_bytes = std::min(memory.available_bytes, least);
    memory.resident_bytes = memory.total_bytes - memory.available_bytes;
  }
  RETURN_IF_ERROR(SizeKvCache(bytes_per_block, memory, setup));
  const ExecutorLimits& limits = setup->runner.limits;
  RETURN_IF_ERROR(runner->AllocateKvCache(limits.num_blocks, limits.max_model_len));
  const SpeculativeConfig& speculation = setup->runner.speculation;
  if (speculation.drafts() && speculation.adaptive) {
    runner->MeasureSteps();
    startup->Done("costs of drafts");
  }
  if (!is_device) return OkStatus();
  startup->Done("KV cache memory");
  RETURN_IF_ERROR(runner->CaptureGraphs());
  startup->Done("CUDA graphs", std::to_string(runner->num_graphs()) + " of decode steps");
  return OkStatus();
}

std::string HowStoredIsComputed(const EngineSetup& setup) {
  const std::string dtype(DTypeName(setup.backend.dtype));
  if (setup.device == "cuda") {
    return setup.backend.dtype == DType::kF32
               ? "as float32, since kernels for codes compute in bfloat16"
               : "products of up to 64 tokens take the codes, others " + dtype +
                     " that is made of them in each";
  }
  return "for blocks and groups of integers activations are rounded to int8 in blocks, other codes "
         "become " +
         dtype + " in each product (faster for few requests, in more memory: --quantization none)";
}

void LogCheckpoint(const ModelConfig& model, const EngineSetup& setup) {
  const CheckpointQuantization& stored = model.quantization;
  if (stored.method == QuantizationMethod::kNone) return;
  const WeightFormat format = setup.formats.layers;
  const std::string dtype(DTypeName(setup.backend.dtype));
  const std::string kept = format == WeightFormat::kStored
                               ? "kept as they are: " + HowStoredIsComputed(setup)
                           : format == WeightFormat::kCompute
                               ? "kept as " + dtype + " (less memory: --quantization int8 or int4)"
                               : "quantized again by --quantization";
  LOG_INFO << (stored.method == QuantizationMethod::kGguf
                   ? "the model is a GGUF file of " + stored.tensor_types + " tensors"
                   : "the checkpoint is quantized by " + std::string(MethodName(stored.method)))
           << "; its weights are " << kept
           << (stored.has_quantized_activations && format == WeightFormat::kCompute
                   ? ". Activations are not quantized, unlike in its scheme"
                   : "");
}

void LogAttention(const EngineSetup& setup) {
  if (setup.device != "cuda") return;
  LOG_INFO << "Using "
           << (setup.attention == AttentionBackend::kFlashInfer ? "flashinfer" : "tandem")
           << " attention backend: " << setup.attention_reason;
}

// Of the target, on a host at all its ranks, and, in the same blocks, of a drafter with a model.
int64_t KvBytesPerBlock(const ModelConfig& config, const std::optional<DraftModelConfig>& draft,
                        const Backend& backend, const EngineSetup& setup) {
  const auto bytes = [&](const ModelConfig& model, const RankPlace& place,
                         const LayerGroups& of_model) {
    return backend.KvBytesPerBlock(KvSpecOf(model, setup.runner.limits.block_size, 0,
                                            setup.runner.kv_format, place, of_model));
  };
  const LayerGroups& groups = setup.runner.limits.groups;
  const int num_ranks = backend.device().memory_is_host() ? setup.ranks.num_ranks() : 1;
  int64_t sum = draft ? bytes(draft->config, {}, {}) : 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    sum += bytes(config, setup.ranks.PlaceOf(rank), groups);
  }
  return sum;
}

// What a file has and a model does not use may be why its outputs are wrong.
void WarnOfUnusedTensors(const Weights& weights, const ModelConfig& model) {
  constexpr size_t kMostNames = 8;
  const std::vector<std::string> names = UnusedTensors(weights, model);
  if (names.empty()) return;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  LOG_WARNING << names.size() << " of the checkpoint's tensors are not used by "
              << model.architecture << ": " << text << (names.size() > kMostNames ? ", ..." : "");
}

ModelSourceOptions SourceOf(const EngineConfig& config, const ModelConfig& model,
                            const EngineSetup& setup, RankGroup* ranks,
                            PackedCheck* packed_check = nullptr) {
  std::function<void(PackedParts)> on_packed;
  if (packed_check != nullptr) {
    on_packed = [packed_check](PackedParts parts) { packed_check->Push(std::move(parts)); };
  }
  return {.path = config.model,
          .load_format = config.load_format,
          .seed = static_cast<uint64_t>(config.seed),
          .config = model,
          .limits = ModelLimitsOf(setup.runner.limits),
          .formats = setup.formats,
          .ranks = ranks,
          .splits_experts = setup.splits_experts,
          .makes_logits = !setup.runner.limits.pooling,
          .kv_format = setup.runner.kv_format,
          .on_packed = std::move(on_packed)};
}

// What is mapped becomes resident only as it is read.
int64_t MappedBytes(const std::string& model) {
  const std::string path = FindPackedFile(model);
  std::error_code error;
  const auto size = path.empty() ? 0 : std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

// Chooses max_model_len where it is auto and plans the memory. The plan is set on failure too: the
// error's advice needs it.
Status PlanStart(const ModelConfig& config, const std::optional<DraftModelConfig>& draft,
                 const Backend& backend, const HostMemory& memory, EngineSetup* setup) {
  const int64_t bytes_per_block = KvBytesPerBlock(config, draft, backend, *setup);
  ExecutorLimits& limits = setup->runner.limits;
  const StatusOr<int32_t> max_model_len =
      ChooseMaxModelLen(setup->auto_max_model_len, bytes_per_block, limits, memory);
  if (max_model_len.ok()) limits.max_model_len = *max_model_len;
  const MemoryPlanInput input = {.dtype = setup->backend.dtype,
                                 .formats = setup->formats,
                                 .kv_bytes_per_block = bytes_per_block,
                                 .is_device = !backend.device().memory_is_host(),
                                 .num_shares = setup->device == "cuda" ? setup->ranks.tensor : 1};
  setup->memory_plan = PlanMemory(config, limits, input);
  if (draft) setup->memory_plan->AddDrafter(PlanMemory(draft->PlannedConfig(), limits, input));
  if (!max_model_len.ok()) return max_model_len.status();
  return CheckFits(*setup->memory_plan, memory);
}

// Each rank checks all of an adapter, whose modules may be those of others. workers: null: there is
// one rank.
Status ShareModules(WorkerProcesses* workers, AdapterReader* reader) {
  if (workers == nullptr) return OkStatus();
  reader->AddModules(workers->modules());
  return workers->ShareModules(reader->modules());
}

// What is made of the checkpoint, and the checkpoint, open.
struct LoadedParts {
  std::unique_ptr<ModelSource> source;
  std::unique_ptr<Model> model;
  std::unique_ptr<VisionTower> tower;  // null: no images
  DraftModel draft;
};

// Packs the weights. Other ranks have packed theirs by its return.
StatusOr<LoadedParts> LoadParts(const EngineConfig& config, const ModelConfig& model_config,
                                const std::optional<DraftModelConfig>& draft_config,
                                Backend* backend, EngineSetup* setup, const LoadedRunner& loaded,
                                PackedCheck* packed_check, StartupLog* startup) {
  const MemoryPlan& plan = *setup->memory_plan;
  LoadedParts parts;
  parts.source = std::make_unique<ModelSource>(
      SourceOf(config, model_config, *setup, loaded.ranks.get(), packed_check));
  RETURN_IF_ERROR(parts.source->Open());
  startup->Done("weights mapped");
  ASSIGN_OR_RETURN(parts.model, parts.source->Load(backend, loaded.adapter_sites.get()));
  if (const auto& pooling = setup->runner.limits.pooling) {
    ASSIGN_OR_RETURN(
        setup->runner.pooler_head,
        PoolerHead::Load(config.model, model_config, *pooling, &parts.source->weights()));
  }
  startup->Done("weights packed", "about " + WithCommas(plan.weights >> 20) + " MiB");
  if (setup->runner.limits.images) {
    ASSIGN_OR_RETURN(parts.tower, parts.source->LoadTower(backend));
    startup->Done("vision tower", "about " + WithCommas(plan.tower >> 20) + " MiB; " +
                                      WithCommas(setup->runner.limits.max_num_batched_tokens) +
                                      " rows of images are kept, in up to " +
                                      WithCommas(plan.image_rows >> 20) + " MiB");
  }
  if (loaded.ranks == nullptr) WarnOfUnusedTensors(parts.source->weights(), model_config);
  if (draft_config) {
    ASSIGN_OR_RETURN(parts.draft,
                     LoadDraft(config, model_config, *setup, *draft_config, *parts.model, backend));
    startup->Done("drafter");
  }
  if (loaded.workers != nullptr) {
    RETURN_IF_ERROR(loaded.workers->AwaitReady());
    startup->Done("workers", "all " + std::to_string(setup->ranks.num_ranks()) +
                                 " ranks have their part of the model");
  }
  return parts;
}

// How the drafter is loaded again after a sleep; empty: there is none. Borrows all but
// draft_config.
ModelRunner::DraftSource DraftSourceOf(const EngineConfig& config, const ModelConfig& model_config,
                                       const std::optional<DraftModelConfig>& draft_config,
                                       const EngineSetup* setup) {
  if (!draft_config) return {};
  return [&config, &model_config, setup, draft = *draft_config](const Model& target,
                                                                Backend* backend) {
    return LoadDraft(config, model_config, *setup, draft, target, backend);
  };
}

void LogKvCache(const ModelConfig& model_config, const EngineSetup& setup, int64_t bytes_per_block,
                const Backend& backend, StartupLog* startup) {
  const ExecutorLimits& limits = setup.runner.limits;
  const CacheSize cache = SizeOf(limits);
  const KvCacheSpec spec =
      KvSpecOf(model_config, limits.block_size, 0, setup.runner.kv_format, {}, limits.groups);
  // With groups, of all ranks: how many layers of a group a stage has depends on the stage.
  const int64_t text_bytes =
      limits.groups.count() > 1 ? bytes_per_block : backend.KvBytesPerBlock(spec);
  startup->Done("KV cache", std::string(setup.device == "cuda" ? "GPU" : "CPU") +
                                " KV cache size: " + WithCommas(cache.tokens) + " tokens (" +
                                WithCommas(limits.num_blocks) + " blocks of " +
                                std::to_string(limits.block_size) + ", " +
                                WithCommas(limits.num_blocks * bytes_per_block >> 20) + " MiB; " +
                                KvMemoryText(model_config, spec, limits.groups, text_bytes) + ")");
  if (!setup.why_one_group.empty()) {
    LOG_INFO << (model_config.recurrent.num_layers() > 0
                     ? "requests hold the states after each of their blocks: "
                     : "requests hold the KV of all their tokens also in layers that see recent "
                       "ones alone: ")
             << setup.why_one_group;
  }
  LOG_INFO << "Maximum concurrency for " << WithCommas(limits.max_model_len)
           << " tokens per request: " << Fixed(cache.max_concurrency, 2) << "x";
}

// Packs the weights, then makes the runner and its KV cache from the memory that is left.
StatusOr<std::unique_ptr<ModelRunner>> MakeRunner(
    const EngineConfig& config, const ModelConfig& model_config,
    const std::optional<DraftModelConfig>& draft_config, std::unique_ptr<Backend> backend,
    EngineSetup* setup, LoadedRunner* loaded, PackedCheck* packed_check, StartupLog* startup) {
  const int64_t bytes_per_block = KvBytesPerBlock(model_config, draft_config, *backend, *setup);
  if (setup->max_lora_rank > 0) {
    loaded->adapter_sites = std::make_unique<AdapterSites>();
    setup->runner.adapters = {.sites = loaded->adapter_sites.get(),
                              .max_rank = setup->max_lora_rank,
                              .max_in_step = setup->engine.scheduler.max_loras};
  }
  ASSIGN_OR_RETURN(LoadedParts parts, LoadParts(config, model_config, draft_config, backend.get(),
                                                setup, *loaded, packed_check, startup));
  ASSIGN_OR_RETURN(
      std::unique_ptr<ModelRunner> runner,
      ModelRunner::CreateWithoutCache(std::move(backend), std::move(parts.model), model_config,
                                      setup->runner, std::move(parts.draft)));
  if (parts.tower != nullptr) runner->SetTower(std::move(parts.tower));
  if (config.enable_sleep_mode) {
    runner->SetSource(std::move(parts.source),
                      DraftSourceOf(config, model_config, draft_config, setup));
  }
  parts.source.reset();
  startup->Done("step buffers");
  const bool is_host = runner->backend().device().memory_is_host();
  int64_t other_bytes = loaded->workers && is_host ? loaded->workers->resident_bytes() : 0;
  other_bytes += MappedBytes(config.model);
  if (setup->max_lora_rank > 0) {
    loaded->adapter_reader = std::make_unique<AdapterReader>(
        loaded->adapter_sites.get(), &runner->backend(), setup->max_lora_rank);
    RETURN_IF_ERROR(ShareModules(loaded->workers.get(), loaded->adapter_reader.get()));
    // A device has its places for adapters by now.
    if (is_host) {
      other_bytes += loaded->adapter_reader->max_adapter_bytes() * setup->engine.max_cpu_loras *
                     setup->ranks.tensor;
    }
  }
  RETURN_IF_ERROR(FinishRunner(bytes_per_block, other_bytes, runner.get(), setup, startup));
  LogKvCache(model_config, *setup, bytes_per_block, runner->backend(), startup);
  return runner;
}

Status CheckDevices(const EngineSetup& setup) {
  const int wanted = setup.ranks.num_ranks();
  if (setup.device != "cuda" || wanted == 1 || NumCudaDevices() >= wanted) return OkStatus();
  return UnavailableError("--tensor-parallel-size " + std::to_string(wanted) +
                          ": needs as many CUDA devices, there are " +
                          std::to_string(NumCudaDevices()) +
                          "; CUDA_VISIBLE_DEVICES may hide others");
}

// The workers get the flags of this process, with the limits that it has chosen.
Status StartWorkers(EngineConfig config, const ModelConfig& model_config,
                    const std::optional<DraftModelConfig>& draft, EngineSetup* setup,
                    LoadedRunner* loaded) {
  config.max_model_len = setup->runner.limits.max_model_len;
  config.max_num_seqs = setup->runner.limits.max_num_seqs;
  config.max_num_batched_tokens = setup->runner.limits.max_num_batched_tokens;
  const auto state_layers = draft && draft->eagle ? std::span<const int>(draft->eagle->state_layers)
                                                  : std::span<const int>();
  ASSIGN_OR_RETURN(loaded->ranks,
                   RankGroup::Create(GroupShapeOf(*setup, model_config, state_layers)));
  ASSIGN_OR_RETURN(loaded->workers,
                   WorkerProcesses::Start(ToArguments(EngineFlags(config)), loaded->ranks.get()));
  setup->runner.ranks = loaded->ranks.get();
  return OkStatus();
}

// A rank that is lost meanwhile would be waited for by the library through which they join.
Status JoinRanks(Backend* backend, LoadedRunner* loaded, WorkerProcesses::OnLost on_lost) {
  loaded->workers->Watch(std::move(on_lost));
  const Status joined = loaded->ranks->Join(backend);
  loaded->workers->EndWatch();
  return joined;
}

}  // namespace

StatusOr<std::unique_ptr<RankRunner>> LoadRank(const EngineConfig& config,
                                               const ModelConfig& model_config,
                                               const EngineSetup& setup, RankGroup* group,
                                               AdapterSites* adapter_sites, StartupLog* startup) {
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(setup, group->place().share.rank));
  startup->Done("device", std::string(backend->description()));
  RETURN_IF_ERROR(group->Join(backend.get()));
  auto source = std::make_unique<ModelSource>(SourceOf(config, model_config, setup, group));
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, source->Load(backend.get(), adapter_sites));
  startup->Done("weights packed");
  ASSIGN_OR_RETURN(
      std::unique_ptr<RankRunner> runner,
      RankRunner::Create(std::move(backend), std::move(model), model_config, setup.runner, group));
  if (config.enable_sleep_mode) runner->SetSource(std::move(source));
  return runner;
}

CacheSize SizeOf(const ExecutorLimits& limits) {
  const int64_t num_blocks = limits.num_blocks - 1;
  if (limits.groups.num_local == 0) {
    const int64_t tokens = num_blocks / limits.groups.count() * limits.block_size;
    return {tokens, static_cast<double>(tokens) / limits.max_model_len};
  }
  const int64_t num_held = MaxHeldBlocks(CacheWithLimits({}, limits));
  return {num_blocks * limits.max_model_len / num_held,
          static_cast<double>(num_blocks) / static_cast<double>(num_held)};
}

StatusOr<LoadedRunner> LoadRunner(const EngineConfig& config, const ModelConfig& model_config,
                                  EngineSetup* setup, StartupLog* startup,
                                  WorkerProcesses::OnLost on_lost, PackedCheck* packed_check) {
  RETURN_IF_ERROR(CheckDevices(*setup));
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(*setup, 0));
  startup->Done("device", std::string(backend->description()) + ", dtype " +
                              std::string(DTypeName(setup->backend.dtype)) + ", quantization " +
                              config.quantization);
  LogCheckpoint(model_config, *setup);
  LogAttention(*setup);
  LoadedRunner loaded;
  loaded.memory = ReadMemory(*backend, *setup);
  ASSIGN_OR_RETURN(std::optional<DraftModelConfig> draft_config,
                   ReadDraftModelConfig(model_config, setup->runner.speculation));
  if (draft_config) {
    draft_config->copies_tables =
        setup->ranks.num_ranks() > 1 && setup->runner.speculation.has_head();
  }
  if (const Status fits = PlanStart(model_config, draft_config, *backend, loaded.memory, setup);
      !fits.ok()) {
    return loaded.WithAdvice(fits, *setup);
  }
  if (setup->ranks.num_ranks() > 1) {
    RETURN_IF_ERROR(StartWorkers(config, model_config, draft_config, setup, &loaded));
    if (!backend->device().memory_is_host()) {
      RETURN_IF_ERROR(JoinRanks(backend.get(), &loaded, std::move(on_lost)));
      startup->Done("ranks joined");
    }
  }
  StatusOr<std::unique_ptr<ModelRunner>> runner =
      MakeRunner(config, model_config, draft_config, std::move(backend), setup, &loaded,
                 packed_check, startup);
  if (!runner.ok()) return loaded.WithAdvice(runner.status(), *setup);
  loaded.runner = *std::move(runner);
  return loaded;
}

}  // namespace tandem
