#include "engine_core/load_runner.h"

#include <string>
#include <utility>

#include "common/log.h"
#include "common/strings.h"
#include "engine_core/executor/kv_cache_size.h"
#include "engine_core/executor/memory_plan.h"
#include "engine_core/models/registry.h"

namespace tandem {
namespace {

StatusOr<std::unique_ptr<Backend>> MakeBackend(const EngineSetup& setup) {
  if (setup.device == "reference") return MakeReferenceBackend();
  if (setup.device == "cuda") {
    return MakeCudaBackend({.dtype = setup.backend.dtype,
                            .num_threads = setup.backend.num_threads,
                            .attention = setup.attention});
  }
  return MakeCpuBackend(setup.backend);
}

// The memory of the device that will hold the KV cache.
HostMemory ReadMemory(const Backend& backend) {
  if (backend.device().memory_is_host()) return ReadHostMemory();
  const DeviceMemory memory = backend.device().memory();
  return {.total_bytes = memory.total_bytes,
          .available_bytes = memory.free_bytes,
          .resident_bytes = memory.total_bytes - memory.free_bytes};
}

StatusOr<std::unique_ptr<Weights>> OpenWeights(const EngineConfig& config) {
  if (config.load_format == "dummy") return MakeDummyWeights(static_cast<uint64_t>(config.seed));
  return OpenSafetensors(config.model);
}

// Allocates the KV cache and captures graphs. On a device the cache gets what the largest step
// leaves free, which is measured by running it.
Status FinishRunner(int64_t bytes_per_block, ModelRunner* runner, EngineSetup* setup,
                    StartupLog* startup) {
  const bool is_device = !runner->backend().device().memory_is_host();
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
  RETURN_IF_ERROR(SizeKvCache(bytes_per_block, ReadMemory(runner->backend()), setup));
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

void LogCheckpoint(const ModelConfig& model, const EngineSetup& setup) {
  const CheckpointQuantization& stored = model.quantization;
  if (stored.method == QuantizationMethod::kNone) return;
  const bool is_kept = setup.formats.layers == WeightFormat::kCompute;
  LOG_INFO << "the checkpoint is quantized by " << MethodName(stored.method) << "; its weights are "
           << (is_kept ? "kept as " + std::string(DTypeName(setup.backend.dtype)) +
                             " (less memory: --quantization int8 or int4)"
                       : "quantized again by --quantization")
           << (stored.has_quantized_activations && is_kept
                   ? ". Activations are not quantized, unlike in its scheme"
                   : "");
}

void LogAttention(const EngineSetup& setup) {
  if (setup.device != "cuda") return;
  LOG_INFO << "Using "
           << (setup.attention == AttentionBackend::kFlashInfer ? "flashinfer" : "tandem")
           << " attention backend: " << setup.attention_reason;
}

int64_t KvBytesPerBlock(const ModelConfig& config, const Backend& backend,
                        const EngineSetup& setup) {
  return backend.KvBytesPerBlock(
      KvSpecOf(config, setup.runner.limits.block_size, 0, setup.runner.kv_format));
}

// Chooses max_model_len where it is auto and plans the memory. The plan is set on failure too: the
// error's advice needs it.
Status PlanStart(const ModelConfig& config, const Backend& backend, const HostMemory& memory,
                 EngineSetup* setup) {
  const int64_t bytes_per_block = KvBytesPerBlock(config, backend, *setup);
  ExecutorLimits& limits = setup->runner.limits;
  const StatusOr<int32_t> max_model_len =
      ChooseMaxModelLen(setup->auto_max_model_len, bytes_per_block, limits, memory);
  if (max_model_len.ok()) limits.max_model_len = *max_model_len;
  setup->memory_plan = PlanMemory(config, limits,
                                  {.dtype = setup->backend.dtype,
                                   .formats = setup->formats,
                                   .kv_bytes_per_block = bytes_per_block,
                                   .is_device = !backend.device().memory_is_host()});
  if (!max_model_len.ok()) return max_model_len.status();
  return CheckFits(*setup->memory_plan, memory);
}

// Packs the weights, then makes the runner and its KV cache from the memory that is left.
StatusOr<std::unique_ptr<ModelRunner>> MakeRunner(const EngineConfig& config,
                                                  const ModelConfig& model_config,
                                                  std::unique_ptr<Backend> backend,
                                                  EngineSetup* setup, StartupLog* startup) {
  ASSIGN_OR_RETURN(std::unique_ptr<Weights> weights, OpenWeights(config));
  startup->Done("weights mapped");
  const int64_t bytes_per_block = KvBytesPerBlock(model_config, *backend, *setup);
  const ModelLimits model_limits = ModelLimitsOf(setup->runner.limits);
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                   LoadModel({model_config, model_limits, *weights, *backend, setup->formats}));
  weights.reset();
  startup->Done("weights packed",
                "about " + WithCommas(setup->memory_plan->weights >> 20) + " MiB");
  ASSIGN_OR_RETURN(std::unique_ptr<ModelRunner> runner,
                   ModelRunner::CreateWithoutCache(std::move(backend), std::move(model),
                                                   model_config, setup->runner));
  startup->Done("step buffers");
  RETURN_IF_ERROR(FinishRunner(bytes_per_block, runner.get(), setup, startup));
  const ExecutorLimits& limits = setup->runner.limits;
  const CacheSize cache = SizeOf(limits);
  startup->Done("KV cache", std::string(setup->device == "cuda" ? "GPU" : "CPU") +
                                " KV cache size: " + WithCommas(cache.tokens) + " tokens (" +
                                WithCommas(limits.num_blocks) + " blocks of " +
                                std::to_string(limits.block_size) + ", " +
                                WithCommas(limits.num_blocks * bytes_per_block >> 20) + " MiB)");
  LOG_INFO << "Maximum concurrency for " << WithCommas(limits.max_model_len)
           << " tokens per request: " << Fixed(cache.max_concurrency, 2) << "x";
  return runner;
}

}  // namespace

CacheSize SizeOf(const ExecutorLimits& limits) {
  const int64_t tokens = int64_t{limits.num_blocks - 1} * limits.block_size;
  if (limits.sliding_window == 0) {
    return {tokens, static_cast<double>(tokens) / limits.max_model_len};
  }
  const int32_t num_held = MaxHeldBlocks(CacheWithLimits({}, limits));
  return {tokens, static_cast<double>(limits.num_blocks - 1) / num_held};
}

StatusOr<LoadedRunner> LoadRunner(const EngineConfig& config, const ModelConfig& model_config,
                                  EngineSetup* setup, StartupLog* startup) {
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(*setup));
  startup->Done("device", std::string(backend->description()) + ", dtype " +
                              std::string(DTypeName(setup->backend.dtype)) + ", quantization " +
                              config.quantization);
  LogCheckpoint(model_config, *setup);
  LogAttention(*setup);
  LoadedRunner loaded;
  loaded.memory = ReadMemory(*backend);
  if (const Status fits = PlanStart(model_config, *backend, loaded.memory, setup); !fits.ok()) {
    return loaded.WithAdvice(fits, *setup);
  }
  StatusOr<std::unique_ptr<ModelRunner>> runner =
      MakeRunner(config, model_config, std::move(backend), setup, startup);
  if (!runner.ok()) return loaded.WithAdvice(runner.status(), *setup);
  loaded.runner = *std::move(runner);
  return loaded;
}

}  // namespace tandem
