#include "engine_core/config.h"

#include <algorithm>
#include <cstdlib>

#include "common/log.h"
#include "common/strings.h"
#include "engine_core/batch_defaults.h"
#include "engine_core/compilation_config.h"
#include "engine_core/config_features.h"
#include "engine_core/executor/graph_sizes.h"
#include "engine_core/kv_event_batch.h"
#include "engine_core/weights/kv_cache_scheme.h"
#include "kernels/compute_pool.h"

namespace tandem {

namespace {

// The context a model was trained for or extended to; positions are numbered in 32 bits.
int64_t DerivedMaxModelLen(const ModelConfig& model) {
  constexpr double kMost = 1 << 30;
  const RopeConfig& rope = model.rope;
  const auto own = static_cast<double>(model.max_position_embeddings);
  double derived = own;
  if (rope.type == RopeType::kLinear) derived = own * rope.factor;
  if (rope.type == RopeType::kYarn) {
    derived =
        std::max(own, static_cast<double>(rope.original_max_position_embeddings) * rope.factor);
  }
  return static_cast<int64_t>(std::min(derived, kMost));
}

Status SetLengths(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup) {
  int64_t derived = DerivedMaxModelLen(model);
  const std::optional<PoolerConfig>& pooling = setup->runner.limits.pooling;
  if (pooling && pooling->max_seq_length > 0) {
    derived = std::min(derived, pooling->max_seq_length);
  }
  // LongRoPE's long factors cost short requests quality, so more than the original context must be
  // asked for.
  const int64_t usual = model.rope.type == RopeType::kLongRope
                            ? std::min(derived, model.rope.original_max_position_embeddings)
                            : derived;
  const int64_t wanted = config.max_model_len.value_or(usual);
  setup->auto_max_model_len = wanted == -1;
  if (wanted != -1 && (wanted < 2 || wanted > derived)) {
    return InvalidArgumentError("--max-model-len " + std::to_string(wanted) +
                                ": must be between 2 and the model's " + std::to_string(derived));
  }
  setup->runner.limits.max_model_len = static_cast<int32_t>(wanted == -1 ? usual : wanted);
  return OkStatus();
}

Status SetBatch(const EngineConfig& config, EngineSetup* setup) {
  const BatchDefaults defaults = BatchDefaultsFor(
      setup->device == "cuda" ? ReadCudaFacts().value_or(CudaFacts()) : std::optional<CudaFacts>(),
      config.offline, config.performance_mode == "throughput");
  ExecutorLimits& limits = setup->runner.limits;
  const int64_t max_model_len = limits.max_model_len;
  int64_t tokens = config.max_num_batched_tokens.value_or(defaults.max_num_batched_tokens);
  if (!config.enable_chunked_prefill) {
    if (config.max_num_batched_tokens && tokens < max_model_len) {
      return InvalidArgumentError("--max-num-batched-tokens " + std::to_string(tokens) +
                                  ": without chunked prefill it must be at least --max-model-len " +
                                  std::to_string(max_model_len));
    }
    tokens = std::max(tokens, max_model_len);
  }
  const int64_t seqs =
      config.max_num_seqs ? *config.max_num_seqs : std::min(defaults.max_num_seqs, tokens);
  if (seqs > tokens) {
    return InvalidArgumentError("--max-num-seqs " + std::to_string(seqs) +
                                ": must not be above --max-num-batched-tokens " +
                                std::to_string(tokens));
  }
  if (!config.max_num_batched_tokens) tokens = std::min(tokens, seqs * max_model_len);
  limits.max_num_batched_tokens = static_cast<int32_t>(tokens);
  limits.max_num_seqs = static_cast<int32_t>(seqs);
  if (config.max_num_active_seqs > seqs) {
    return InvalidArgumentError("--max-num-active-seqs " +
                                std::to_string(config.max_num_active_seqs) +
                                ": must not be above --max-num-seqs " + std::to_string(seqs));
  }
  if (config.max_num_scheduled_tokens > tokens) {
    return InvalidArgumentError(
        "--max-num-scheduled-tokens " + std::to_string(config.max_num_scheduled_tokens) +
        ": must not be above --max-num-batched-tokens " + std::to_string(tokens));
  }
  if (!config.enable_chunked_prefill && config.max_num_scheduled_tokens > 0 &&
      config.max_num_scheduled_tokens < max_model_len) {
    return InvalidArgumentError("--max-num-scheduled-tokens " +
                                std::to_string(config.max_num_scheduled_tokens) +
                                ": without chunked prefill it must be at least --max-model-len " +
                                std::to_string(max_model_len));
  }
  if (config.long_prefill_token_threshold > max_model_len) {
    return InvalidArgumentError(
        "--long-prefill-token-threshold " + std::to_string(config.long_prefill_token_threshold) +
        ": must not be above --max-model-len " + std::to_string(max_model_len));
  }
  return OkStatus();
}

// Reads what the model's files and flags say of pooling. What is not built with it is refused.
Status SetPooling(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup) {
  ASSIGN_OR_RETURN(
      setup->runner.limits.pooling,
      ReadPoolerConfig(config.model, {config.runner, config.convert, config.pooler_config},
                       config.hf_overrides));
  if (!setup->runner.limits.pooling) {
    if (!model.is_bidirectional) return OkStatus();
    return InvalidArgumentError("--runner generate: the tokens of " + model.architecture +
                                " see those after them, so it cannot generate");
  }
  const auto refuse = [](const std::string& flag) {
    return InvalidArgumentError(flag + ": is not built for models that make vectors or scores");
  };
  if (setup->device == "cuda" && config.tensor_parallel_size > 1) {
    return refuse("--tensor-parallel-size above 1 with --device cuda");
  }
  if (!config.speculative_config.empty()) return refuse("--speculative-config");
  if (config.enable_prompt_embeds) return refuse("--enable-prompt-embeds");
  return OkStatus();
}

// --dtype must be resolved.
StatusOr<KvFormat> KvFormatOf(const std::string& name, DType dtype) {
  if (name == "auto" || name == DTypeName(dtype)) return KvFormat::kCompute;
  if (name == "int8") return KvFormat::kInt8;
  if (name == "int4") return KvFormat::kInt4;
  if (name == "fp8" || name == "fp8_e4m3") return KvFormat::kFloat8;
  std::string problem =
      "must be one of auto int8 int4 fp8 fp8_e4m3 " + std::string(DTypeName(dtype));
  if (name == "bfloat16" || name == "float32") problem += ", as --dtype is";
  return InvalidArgumentError("--kv-cache-dtype " + name + ": " + problem);
}

// --kv-cache-dtype auto: what a checkpoint's own scheme says comes before --dtype, as in vLLM.
Status FollowKvScheme(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup) {
  if (model.quantization.method != QuantizationMethod::kCompressedTensors &&
      model.quantization.method != QuantizationMethod::kModelOpt) {
    return OkStatus();
  }
  ASSIGN_OR_RETURN(KvCacheScheme scheme, ReadKvCacheScheme(config.model, config.hf_overrides));
  if (scheme.is_float8 && setup->device == "cuda" && model.latent.kv_rank > 0) {
    scheme = {.unsupported = "it is not built for latent attention on cuda"};
  }
  if (scheme.is_float8 && model.index.dim > 0) {
    scheme = {.unsupported = "it is not built for sparse attention"};
  }
  if (scheme.is_float8) {
    setup->runner.kv_format = KvFormat::kFloat8;
    LOG_INFO << "[kv cache] fp8 with the checkpoint's scales, as its configuration says; "
                "--kv-cache-dtype "
             << DTypeName(setup->backend.dtype) << " keeps numbers of that type";
  } else if (!scheme.unsupported.empty()) {
    LOG_WARNING << "[kv cache] what the checkpoint says of the KV cache has no effect: "
                << scheme.unsupported;
  }
  return OkStatus();
}

Status SetIsa(const EngineConfig& config, EngineSetup* setup) {
  const std::string& name = config.cpu_isa;
  if (name == "auto") return OkStatus();
  if (setup->device != "cpu") {
    return InvalidArgumentError("--cpu-isa " + name + ": is for --device cpu, this is " +
                                setup->device);
  }
  const CpuIsa isa = FindCpuIsa(name).value();
  if (!CpuHasIsa(isa)) {
    return InvalidArgumentError("--cpu-isa " + name +
                                ": this CPU lacks it, or the system does not permit its use");
  }
  setup->backend.isa = isa;
  return OkStatus();
}

Status SetDevice(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup) {
  setup->device = config.device;
  setup->uses_peers = !config.disable_custom_all_reduce;
  if (config.device == "auto") setup->device = HasCudaDevice() ? "cuda" : "cpu";
  const bool is_reference = setup->device == "reference";
  setup->backend.dtype = config.dtype == "float32" || is_reference ? DType::kF32 : DType::kBf16;
  setup->backend.num_threads = static_cast<int>(config.threads);
  RETURN_IF_ERROR(SetIsa(config, setup));
  ASSIGN_OR_RETURN(setup->runner.kv_format,
                   KvFormatOf(config.kv_cache_dtype, setup->backend.dtype));
  if (config.kv_cache_dtype == "auto") RETURN_IF_ERROR(FollowKvScheme(config, model, setup));
  return OkStatus();
}

// Needs the device, the ranks and the groups of layers.
Status SetBlockSize(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup) {
  ExecutorLimits& limits = setup->runner.limits;
  const int64_t block_size = config.block_size.value_or(
      DefaultBlockSize(model, setup->backend.dtype, setup->runner.kv_format,
                       /*is_device=*/setup->device == "cuda", limits.groups,
                       {.rank = 0, .size = setup->ranks.tensor}));
  if (setup->device == "cpu" && block_size % 32 != 0) {
    return InvalidArgumentError("--block-size " + std::to_string(block_size) +
                                ": must be a multiple of 32 on cpu");
  }
  limits.block_size = static_cast<int32_t>(block_size);
  return OkStatus();
}

Status SetWeightFormats(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup) {
  const std::string& name = config.quantization;
  const QuantizationMethod method = model.quantization.method;
  const bool is_kept = method != QuantizationMethod::kNone;
  if (name != "auto" && !IsMethodName(name)) {
    setup->formats = WeightFormatsOf(name);
    return OkStatus();
  }
  setup->formats = WeightFormatsOf(is_kept ? "auto" : "none");
  if (name == "auto") return OkStatus();
  if (method == QuantizationMethod::kNone) {
    return InvalidArgumentError("--quantization " + name +
                                ": is for a checkpoint that comes quantized, this one does not; "
                                "int8 and int4 quantize it while it loads");
  }
  if (NamesMethod(name, method)) return OkStatus();
  return InvalidArgumentError("Quantization method specified in the model config (" +
                              std::string(MethodName(method)) +
                              ") does not match the quantization method specified in the "
                              "`quantization` argument (" +
                              name + ").");
}

Status SetAttention(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup) {
  const std::string& name = config.attention_backend;
  setup->attention = name == "auto"     ? AttentionBackend::kAuto
                     : name == "tandem" ? AttentionBackend::kTandem
                                        : AttentionBackend::kFlashInfer;
  if (setup->device != "cuda") {
    if (setup->attention != AttentionBackend::kFlashInfer) return OkStatus();
    return InvalidArgumentError("--attention-backend " + name + ": is for --device cuda, this is " +
                                setup->device);
  }
  ASSIGN_OR_RETURN(const AttentionChoice choice,
                   ChooseAttention(setup->attention, HasFlashInfer(), setup->backend.dtype,
                                   AttentionShapeOf(model)));
  setup->attention =
      choice.is_flashinfer ? AttentionBackend::kFlashInfer : AttentionBackend::kTandem;
  setup->attention_reason = choice.reason;
  return OkStatus();
}

// REQUIRES: the batch's limits are set.
Status SetGraphs(const EngineConfig& config, EngineSetup* setup) {
  const bool is_cuda = setup->device == "cuda";
  ASSIGN_OR_RETURN(
      const CompilationConfig compilation,
      ParseCompilationConfig(config.compilation_config, config.optimization_level, is_cuda));
  if (!compilation.note.empty()) LOG_WARNING << "--compilation-config: " << compilation.note;
  for (const std::string& key : compilation.ignored) {
    LOG_WARNING << "--compilation-config: " << key
                << " has no effect: kernels are compiled with the program";
  }
  const bool has_sizes = !compilation.capture_sizes.empty() || compilation.max_capture_size;
  if (has_sizes && (!config.cudagraph_capture_sizes.empty() || config.max_cudagraph_capture_size)) {
    return InvalidArgumentError(
        "--compilation-config and --cudagraph-capture-sizes both choose the sizes of graphs: give "
        "one");
  }
  GraphSizeOptions options = {.max_num_seqs = setup->runner.limits.max_num_seqs,
                              .max_num_batched_tokens = setup->runner.limits.max_num_batched_tokens,
                              .max_size = compilation.max_capture_size
                                              ? compilation.max_capture_size
                                              : config.max_cudagraph_capture_size,
                              .sizes = compilation.capture_sizes};
  for (const std::string& word : config.cudagraph_capture_sizes) {
    const std::optional<int64_t> size = ParseNumber<int64_t>(word);
    if (!size || *size < 1 || *size > 65536) {
      return InvalidArgumentError("--cudagraph-capture-sizes " + word +
                                  ": must be numbers between 1 and 65536");
    }
    options.sizes.push_back(*size);
  }
  // Of decode steps, which models that pool have none of.
  if (is_cuda && !config.enforce_eager && compilation.captures && !setup->runner.limits.pooling) {
    setup->runner.graph_sizes = GraphSizes(options);
  }
  return OkStatus();
}

LogprobsMode LogprobsModeOf(std::string_view word) {
  return word == "raw_logits"           ? LogprobsMode::kRawLogits
         : word == "processed_logprobs" ? LogprobsMode::kProcessedLogprobs
         : word == "processed_logits"   ? LogprobsMode::kProcessedLogits
                                        : LogprobsMode::kRawLogprobs;
}

// Of 25 decode steps prompts have 96%, nearly what they have without a limit.
constexpr StepTimeLimit kAutoStepTime = {
    .seconds = 0.02, .decode_steps = 3, .most_decode_steps = 25};
constexpr StepTimeLimit kAutoImageTime = {.seconds = 0.02, .decode_steps = 3};

StatusOr<StepTimeLimit> ParseStepTimeLimit(const EngineConfig& config, const EngineSetup& setup) {
  const std::string max_step_ms = MaxStepMsOf(config, setup.device);
  if (max_step_ms == "auto") {
    return config.enable_chunked_prefill ? kAutoStepTime : StepTimeLimit();
  }
  const std::optional<double> milliseconds = ParseNumber<double>(max_step_ms);
  if (!milliseconds || !(*milliseconds >= 0 && *milliseconds <= 1e6)) {
    return InvalidArgumentError("--max-step-ms " + max_step_ms +
                                ": must be milliseconds up to 1000000, 0 or auto");
  }
  if (*milliseconds > 0 && !config.enable_chunked_prefill) {
    return InvalidArgumentError(
        "--max-step-ms: cuts prompts into pieces, which --no-enable-chunked-prefill forbids");
  }
  return StepTimeLimit{.seconds = *milliseconds / 1000};
}

SchedulingPolicy PolicyOf(std::string_view word) {
  return word == "priority"          ? SchedulingPolicy::kPriority
         : word == "shortest-prompt" ? SchedulingPolicy::kShortestPrompt
                                     : SchedulingPolicy::kFcfs;
}

void SetScheduling(const EngineConfig& config, EngineSetup* setup) {
  SchedulerConfig& scheduler = setup->engine.scheduler;
  scheduler.max_num_scheduled_tokens = static_cast<int32_t>(config.max_num_scheduled_tokens);
  scheduler.max_num_active_seqs = static_cast<int32_t>(config.max_num_active_seqs);
  scheduler.policy = PolicyOf(config.scheduling_policy);
  scheduler.longest_prompt_wait_s = config.longest_prompt_wait;
  scheduler.enable_chunked_prefill = config.enable_chunked_prefill;
  scheduler.long_prefill_token_threshold =
      static_cast<int32_t>(config.long_prefill_token_threshold);
  scheduler.long_prefill_token_threshold_adaptive = config.long_prefill_token_threshold_adaptive;
  scheduler.reserve_full_isl = config.scheduler_reserve_full_isl;
  scheduler.prefill_schedule_interval = static_cast<int32_t>(config.prefill_schedule_interval);
  KvCacheConfig& cache = setup->engine.kv_cache;
  // States of cached tokens are not computed, so only the last one can be pooled without them.
  const std::optional<PoolerConfig>& pooling = setup->runner.limits.pooling;
  const bool needs_all_states = pooling && pooling->needs_all_states();
  cache.enable_prefix_caching = config.enable_prefix_caching && !needs_all_states;
  cache.watermark = config.watermark;
  cache.residency_sample = config.kv_cache_metrics ? config.kv_cache_metrics_sample : 0;
  const bool is_xxhash = config.prefix_caching_hash_algo.starts_with("xxhash");
  cache.hash_algorithm = is_xxhash ? HashAlgorithm::kXxhashCbor : HashAlgorithm::kSha256Cbor;
  // Hosts that share cached prefixes agree on the seed through vLLM's variable. Without it xxhash,
  // for which collisions can be constructed, gets a secret seed.
  if (const char* seed = std::getenv("PYTHONHASHSEED")) {
    cache.hash_seed = seed;
  } else if (is_xxhash) {
    cache.hash_seed = RandomHex(64);
  }
  // The results of a step that pools are there when it has been submitted.
  const bool overlaps = setup->device == "cuda" && !setup->runner.limits.pooling;
  setup->engine.async_scheduling = config.async_scheduling.value_or(overlaps);
  setup->engine.engine_index =
      static_cast<int32_t>(config.data_parallel_rank - config.data_parallel_start_rank);
  setup->engine.shutdown_timeout_s = config.shutdown_timeout;
  setup->engine.enable_sleep_mode = config.enable_sleep_mode;
}

// Each token sees all others of its text, which thus is computed in one step.
EngineConfig WithWholePrompts(EngineConfig config) {
  config.enable_chunked_prefill = false;
  config.enable_prefix_caching = false;
  config.long_prefill_token_threshold = 0;
  return config;
}

}  // namespace

// Not where a flag bounds steps otherwise, where nobody waits for tokens, nor on a GPU, where no
// measurement shows what it would cost.
std::string MaxStepMsOf(const EngineConfig& config, std::string_view device) {
  if (config.max_step_ms) return *config.max_step_ms;
  const bool is_bounded = config.max_num_batched_tokens || config.max_num_scheduled_tokens > 0 ||
                          config.long_prefill_token_threshold > 0;
  const bool wants_throughput = config.offline || config.performance_mode == "throughput";
  return is_bounded || wants_throughput || device != "cpu" ? "0" : "auto";
}

StatusOr<EngineSetup> MakeSetup(const EngineConfig& given, const ModelConfig& model) {
  const EngineConfig config = model.is_bidirectional ? WithWholePrompts(given) : given;
  EngineSetup setup;
  RETURN_IF_ERROR(SetDevice(config, model, &setup));
  RETURN_IF_ERROR(SetPooling(config, model, &setup));
  RETURN_IF_ERROR(SetWeightFormats(config, model, &setup));
  RETURN_IF_ERROR(SetAttention(config, model, &setup));
  RETURN_IF_ERROR(SetLengths(config, model, &setup));
  RETURN_IF_ERROR(SetBatch(config, &setup));
  RETURN_IF_ERROR(SetGraphs(config, &setup));
  RETURN_IF_ERROR(SetImages(config, model, &setup));
  RETURN_IF_ERROR(SetDrafts(config, &setup));
  RETURN_IF_ERROR(CheckRecurrent(model, setup));
  RETURN_IF_ERROR(CheckKvFormat(config, model, setup));
  RETURN_IF_ERROR(CheckKeyIndex(config, model, setup));
  RETURN_IF_ERROR(CheckUneven(config, model, setup));
  SetScheduling(config, &setup);
  ASSIGN_OR_RETURN(StepTimeLimit step_time, ParseStepTimeLimit(given, setup));
  if (model.is_bidirectional) step_time = {};  // nobody decodes
  setup.engine.scheduler.step_time_limit = step_time;
  // No step has a budget of tokens that would bound it.
  setup.engine.scheduler.image_time_limit =
      step_time.is_on() && step_time.decode_steps == 0 ? step_time : kAutoImageTime;
  RETURN_IF_ERROR(SetAdapters(config, &setup));
  RETURN_IF_ERROR(CheckSleepMode(config, setup));
  RETURN_IF_ERROR(SetRanks(config, model, &setup));
  ASSIGN_OR_RETURN(setup.grammars, ParseGrammarConfig(config.structured_outputs_config));
  ASSIGN_OR_RETURN(setup.kv_events, ParseKvEventsConfig(config.kv_events_config));
  setup.engine.kv_cache.enable_events =
      setup.kv_events.publishes() && setup.engine.kv_cache.enable_prefix_caching;
  setup.runner.limits.vocab_size = static_cast<int32_t>(model.vocab_size);
  if (config.enable_prompt_embeds) {
    setup.runner.limits.hidden_size = static_cast<int32_t>(model.hidden_size);
  }
  RETURN_IF_ERROR(SetKvTransfer(config, model, &setup));
  SetLayerGroups(config, model, &setup);
  RETURN_IF_ERROR(SetBlockSize(config, model, &setup));
  setup.runner.max_logprobs = config.max_logprobs;
  setup.runner.logprobs_mode = LogprobsModeOf(config.logprobs_mode);
  setup.runner.process_seed = static_cast<uint64_t>(config.seed);
  setup.kv_cache = {.num_blocks = config.num_gpu_blocks_override,
                    .bytes = config.kv_cache_memory_bytes,
                    .utilization = config.gpu_memory_utilization};
  // On few cores a step of a large model takes minutes.
  setup.step_timeout_s =
      config.execute_model_timeout_seconds.value_or(setup.device == "cuda" ? 300 : 1800);
  // Other programs share a host's memory; a device is ours.
  if (setup.device == "cuda" && !setup.kv_cache.utilization) {
    setup.kv_cache.utilization = kDefaultUtilization;
  }
  return setup;
}

RankGroupShape GroupShapeOf(const EngineSetup& setup, const ModelConfig& model,
                            std::span<const int> state_layers) {
  const bool can_all_run = NumUsableCpus() >= setup.backend.num_threads * setup.ranks.num_ranks();
  const int32_t max_adapters = setup.max_lora_rank > 0 ? setup.engine.scheduler.max_loras : 0;
  return RankGroupShape::Of(setup.ranks, setup.runner.limits, model, max_adapters,
                            can_all_run ? kFutexSpins : 0, state_layers);
}

RankCounts RankCountsOf(const EngineConfig& config) {
  return {.tensor = static_cast<int>(config.tensor_parallel_size),
          .pipeline = static_cast<int>(config.pipeline_parallel_size)};
}

Status SizeKvCache(int64_t bytes_per_block, const HostMemory& memory, EngineSetup* setup) {
  ExecutorLimits& limits = setup->runner.limits;
  const std::optional<MemoryPlan>& plan = setup->memory_plan;
  const HostMemory left = plan ? LessStep(memory, *plan) : memory;
  ASSIGN_OR_RETURN(limits.num_blocks,
                   ChooseNumBlocks(setup->kv_cache, bytes_per_block, limits, left));
  if (setup->auto_max_model_len) {
    limits.max_model_len = MaxModelLenOf(limits.num_blocks - 1, limits);
  }
  return OkStatus();
}

}  // namespace tandem
