#include "engine_core/config.h"

#include <algorithm>
#include <cstdlib>

#include "common/strings.h"
#include "engine_core/executor/graph_sizes.h"
#include "engine_core/kv_events.h"
#include "proto_msgpack/handshake_address.h"

namespace tandem {

// clang-format off
std::vector<Flag> EngineFlags(EngineConfig& c) {
  constexpr double kInt32 = 2147483647;
  return {
      {"model", &c.model, "Model folder (config.json, *.safetensors)", {.env = "MODEL", .positional = true}},
      {"load-format", &c.load_format, "auto, safetensors; dummy: made-up weights of the config's shape", {.choices = {"auto", "safetensors", "dummy"}}},
      {"dtype", &c.dtype, "What is computed in; auto: bfloat16", {.choices = {"auto", "bfloat16", "float32"}}},
      {"quantization", &c.quantization, "Keep matrices as integers, made of the checkpoint's weights when it loads: int8, or int4 in groups of 32 (int4-g128: of 128) weights; the embedding and lm_head are int8 in all of them", {.choices = {kQuantizations.begin(), kQuantizations.end()}, .short_name = "q"}},
      {"max-model-len", &c.max_model_len, "Most tokens of a request, prompt and output; -1: what the KV cache holds. Default: the model's", {.min = -1, .max = kInt32}},
      {"seed", &c.seed, "With a request's id, the seed of requests that bring none"},
      {"max-logprobs", &c.max_logprobs, "Most logprobs a request may ask for; -1: the vocabulary", {.min = -1, .max = 1 << 20}},
      {"logprobs-mode", &c.logprobs_mode, "What logprobs are: of the model's logits, or after masks, bias, penalties, temperature and filters; or the logits themselves", {.choices = {"raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"}}},

      {"device", &c.device, "auto: cuda where there is such a device, else cpu; reference: plain loops in float32, for tests", {.choices = {"auto", "cpu", "cuda", "reference"}}},
      {"threads", &c.threads, "Threads that compute; 0: the CPUs this process may use", {.min = 0, .max = 1024}},
      {"attention-backend", &c.attention_backend, "cuda: whose attention kernels run; auto: flashinfer where the build has it and it is made for the model's heads, else tandem", {.choices = {"auto", "tandem", "flashinfer", "FLASHINFER"}}},
      {"enforce-eager", &c.enforce_eager, "cuda: capture no graphs of decode steps at start"},
      {"max-cudagraph-capture-size", &c.max_cudagraph_capture_size, "cuda: most requests of a captured decode step; 0: none. Default: twice --max-num-seqs, at most 512", {.min = 0, .max = 65536}},
      {"cudagraph-capture-sizes", &c.cudagraph_capture_sizes, "cuda: for so many requests decode steps are captured, e.g. 1 2 4 8. Default: 1, 2, 4, from 8 in steps of 8, from 256 of 16"},

      {"kv-cache-dtype", &c.kv_cache_dtype, "What keys and values are kept in: int8 (a scale per token and head), or auto: --dtype, which may also be named"},
      {"block-size", &c.block_size, "Tokens of a KV block, a multiple of 32 on cpu. Default: 32, on cuda 16", {.min = 1, .max = 4096}},
      {"num-gpu-blocks-override", &c.num_gpu_blocks_override, "KV blocks, whatever the memory", {.min = 2, .max = kInt32}},
      {"kv-cache-memory-bytes", &c.kv_cache_memory_bytes, "Memory of the KV cache. Default: by --gpu-memory-utilization", {.min = 1}},
      {"gpu-memory-utilization", &c.gpu_memory_utilization, "Share of memory for weights and KV cache. Default: 0.92, but at most half of what is free and what the limits can use", {.min = 0, .max = 1}},
      {"enable-prefix-caching", &c.enable_prefix_caching, "Reuse KV blocks of equal prefixes"},
      {"prefix-caching-hash-algo", &c.prefix_caching_hash_algo, "Hash of KV blocks; sha256 and xxhash are taken as their _cbor forms", {.choices = {"sha256_cbor", "sha256", "xxhash_cbor", "xxhash"}}},
      {"kv-cache-metrics", &c.kv_cache_metrics, "Watch how long a sample of KV blocks stays and how it is used; the frontend shows it with the same flag"},
      {"kv-cache-metrics-sample", &c.kv_cache_metrics_sample, "Share of KV blocks watched", {.min = 1e-6, .max = 1}},
      {"kv-events-config", &c.kv_events_config, "Publish changes of the prefix cache over ZMQ; a JSON object with vLLM's keys: enable_kv_cache_events, endpoint, replay_endpoint, topic, buffer_steps, hwm, max_queue_size. Default: off"},

      {"max-num-seqs", &c.max_num_seqs, "Most requests of a step. Default: 128", {.min = 1, .max = 65536}},
      {"max-num-batched-tokens", &c.max_num_batched_tokens, "Most tokens of a step. Default: 2048", {.min = 1, .max = 1 << 20}},
      {"max-num-scheduled-tokens", &c.max_num_scheduled_tokens, "Most tokens scheduled in a step; 0: --max-num-batched-tokens", {.min = 0, .max = 1 << 20}},
      {"max-num-active-seqs", &c.max_num_active_seqs, "Admit only up to so many running requests; 0: --max-num-seqs", {.min = 0, .max = 65536}},
      {"long-prefill-token-threshold", &c.long_prefill_token_threshold, "Most tokens of one request in a step while others run; 0: no such limit", {.min = 0, .max = kInt32}},
      {"long-prefill-token-threshold-adaptive", &c.long_prefill_token_threshold_adaptive, "Raise that limit while few requests are there"},
      {"enable-chunked-prefill", &c.enable_chunked_prefill, "Cut prompts into pieces that fit a step"},
      {"scheduler-reserve-full-isl", &c.scheduler_reserve_full_isl, "Admit a request only when its whole prompt has room"},
      {"watermark", &c.watermark, "Share of KV blocks that an admission leaves free", {.min = 0, .max = 0.999}},
      {"prefill-schedule-interval", &c.prefill_schedule_interval, "Start prefills at most every so many steps while others decode", {.min = 1, .max = 65536}},
      {"async-scheduling", &c.async_scheduling, "Schedule the next step while one executes. Default: on for cuda; of no use where the executor is the CPU"},
      {"scheduling-policy", &c.scheduling_policy, "Who runs first: order of arrival, or priority", {.choices = {"fcfs", "priority"}}},

      {"handshake-address", &c.handshake_address, "Where the frontend waits: ipc:///folder/name or tcp://host:port"},
      {"data-parallel-address", &c.data_parallel_address, "Host of the frontend; gives --handshake-address with the next flag"},
      {"data-parallel-rpc-port", &c.data_parallel_rpc_port, "Port the frontend waits at", {.min = 0, .max = 65535}},
      {"data-parallel-rank", &c.data_parallel_rank, "Index of this engine among its frontend's", {.min = 0, .max = 65535}},
      {"shutdown-timeout", &c.shutdown_timeout, "Seconds running requests have after SIGTERM; 0: abort at once", {.min = 0, .max = 86400}},
      {"execute-model-timeout-seconds", &c.execute_model_timeout_seconds, "A step that takes longer ends the process; 0: none does. Default: 300 on cuda, else 1800", {.min = 0, .max = 1e6, .env = "EXECUTE_MODEL_TIMEOUT_SECONDS"}},
      {"log-level", &c.log_level, "DEBUG, INFO, WARNING or ERROR", {.choices = {"DEBUG", "INFO", "WARNING", "ERROR", "debug", "info", "warning", "error"}, .env = "LOGGING_LEVEL"}},
  };
}
// clang-format on

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// vLLM's older way to say --kv-cache-memory-bytes, in GiB.
StatusOr<std::optional<int64_t>> KvCacheSpaceFromEnvironment() {
  for (const char* name : {"TANDEM_CPU_KVCACHE_SPACE", "VLLM_CPU_KVCACHE_SPACE"}) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') continue;
    const std::optional<double> gib = ParseNumber<double>(text);
    if (!gib || !(*gib > 0 && *gib < 1e6)) {
      return InvalidArgumentError(std::string(name) + " is " + text + ", must be GiB above 0");
    }
    return std::optional<int64_t>(static_cast<int64_t>(*gib * static_cast<double>(kGiB)));
  }
  return std::optional<int64_t>();
}

// The context a model was trained for or extended to.
int64_t DerivedMaxModelLen(const ModelConfig& model) {
  const RopeConfig& rope = model.rope;
  if (rope.type == RopeType::kLinear) {
    return static_cast<int64_t>(static_cast<double>(model.max_position_embeddings) * rope.factor);
  }
  if (rope.type == RopeType::kYarn) {
    const double extended =
        static_cast<double>(rope.original_max_position_embeddings) * rope.factor;
    return std::max(model.max_position_embeddings, static_cast<int64_t>(extended));
  }
  return model.max_position_embeddings;
}

Status SetLengths(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup) {
  const int64_t derived = std::min<int64_t>(DerivedMaxModelLen(model), 1 << 30);
  // Longer than the original context costs short requests quality, so it has to be asked for.
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
  constexpr int64_t kDefaultTokens = 2048, kDefaultSeqs = 128;
  ExecutorLimits& limits = setup->runner.limits;
  const int64_t max_model_len = limits.max_model_len;
  int64_t tokens = config.max_num_batched_tokens.value_or(kDefaultTokens);
  if (!config.enable_chunked_prefill) {
    if (config.max_num_batched_tokens && tokens < max_model_len) {
      return InvalidArgumentError("--max-num-batched-tokens " + std::to_string(tokens) +
                                  ": without chunked prefill it must be at least --max-model-len " +
                                  std::to_string(max_model_len));
    }
    tokens = std::max(tokens, max_model_len);
  }
  const int64_t seqs = config.max_num_seqs ? *config.max_num_seqs : std::min(kDefaultSeqs, tokens);
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
  if (config.long_prefill_token_threshold > max_model_len) {
    return InvalidArgumentError(
        "--long-prefill-token-threshold " + std::to_string(config.long_prefill_token_threshold) +
        ": must not be above --max-model-len " + std::to_string(max_model_len));
  }
  return OkStatus();
}

// --dtype must be resolved.
StatusOr<KvFormat> KvFormatOf(const std::string& name, DType dtype) {
  if (name == "auto" || name == DTypeName(dtype)) return KvFormat::kCompute;
  if (name == "int8") return KvFormat::kInt8;
  std::string problem = "must be one of auto int8 " + std::string(DTypeName(dtype));
  if (name.rfind("fp8", 0) == 0) problem += " (fp8 is not built; int8 takes the same space)";
  if (name == "bfloat16" || name == "float32") problem += ", as --dtype is";
  return InvalidArgumentError("--kv-cache-dtype " + name + ": " + problem);
}

Status SetDevice(const EngineConfig& config, EngineSetup* setup) {
  setup->device = config.device;
  if (config.device == "auto") setup->device = HasCudaDevice() ? "cuda" : "cpu";
  const bool is_cpu = setup->device == "cpu", is_reference = setup->device == "reference";
  setup->backend.dtype = config.dtype == "float32" || is_reference ? DType::kF32 : DType::kBf16;
  setup->backend.num_threads = static_cast<int>(config.threads);
  setup->formats = WeightFormatsOf(config.quantization);
  ASSIGN_OR_RETURN(setup->runner.kv_format,
                   KvFormatOf(config.kv_cache_dtype, setup->backend.dtype));
  const int64_t block_size = config.block_size.value_or(setup->device == "cuda" ? 16 : 32);
  if (is_cpu && block_size % 32 != 0) {
    return InvalidArgumentError("--block-size " + std::to_string(block_size) +
                                ": must be a multiple of 32 on cpu");
  }
  setup->runner.limits.block_size = static_cast<int32_t>(block_size);
  return OkStatus();
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
  GraphSizeOptions options = {.max_num_seqs = setup->runner.limits.max_num_seqs,
                              .max_num_batched_tokens = setup->runner.limits.max_num_batched_tokens,
                              .max_size = config.max_cudagraph_capture_size};
  for (const std::string& word : config.cudagraph_capture_sizes) {
    const std::optional<int64_t> size = ParseNumber<int64_t>(word);
    if (!size || *size < 1 || *size > 65536) {
      return InvalidArgumentError("--cudagraph-capture-sizes " + word +
                                  ": must be numbers between 1 and 65536");
    }
    options.sizes.push_back(*size);
  }
  if (setup->device == "cuda" && !config.enforce_eager) {
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

void SetScheduling(const EngineConfig& config, EngineSetup* setup) {
  SchedulerConfig& scheduler = setup->engine.scheduler;
  scheduler.max_num_scheduled_tokens = static_cast<int32_t>(config.max_num_scheduled_tokens);
  scheduler.max_num_active_seqs = static_cast<int32_t>(config.max_num_active_seqs);
  scheduler.policy = config.scheduling_policy == "priority" ? SchedulingPolicy::kPriority
                                                            : SchedulingPolicy::kFcfs;
  scheduler.enable_chunked_prefill = config.enable_chunked_prefill;
  scheduler.long_prefill_token_threshold =
      static_cast<int32_t>(config.long_prefill_token_threshold);
  scheduler.long_prefill_token_threshold_adaptive = config.long_prefill_token_threshold_adaptive;
  scheduler.reserve_full_isl = config.scheduler_reserve_full_isl;
  scheduler.prefill_schedule_interval = static_cast<int32_t>(config.prefill_schedule_interval);
  KvCacheConfig& cache = setup->engine.kv_cache;
  cache.enable_prefix_caching = config.enable_prefix_caching;
  cache.watermark = config.watermark;
  cache.residency_sample = config.kv_cache_metrics ? config.kv_cache_metrics_sample : 0;
  const bool is_xxhash = config.prefix_caching_hash_algo.starts_with("xxhash");
  cache.hash_algorithm = is_xxhash ? HashAlgorithm::kXxhashCbor : HashAlgorithm::kSha256Cbor;
  // Hosts that share cached prefixes agree on the seed through vLLM's variable. Without it a hash
  // that collisions can be made for has a secret one.
  if (const char* seed = std::getenv("PYTHONHASHSEED")) {
    cache.hash_seed = seed;
  } else if (is_xxhash) {
    cache.hash_seed = RandomHex(64);
  }
  setup->engine.async_scheduling = config.async_scheduling.value_or(setup->device == "cuda");
  setup->engine.engine_index = static_cast<int32_t>(config.data_parallel_rank);
  setup->engine.shutdown_timeout_s = config.shutdown_timeout;
}

}  // namespace

Status Finish(EngineConfig& config) {
  if (config.model.empty()) return InvalidArgumentError("which model? give a model folder");
  if (!config.kv_cache_memory_bytes) {
    ASSIGN_OR_RETURN(config.kv_cache_memory_bytes, KvCacheSpaceFromEnvironment());
  }
  ASSIGN_OR_RETURN(
      config.handshake_address,
      wire::ResolveHandshakeAddress(config.handshake_address, config.data_parallel_address,
                                    config.data_parallel_rpc_port));
  return OkStatus();
}

StatusOr<EngineSetup> MakeSetup(const EngineConfig& config, const ModelConfig& model) {
  EngineSetup setup;
  RETURN_IF_ERROR(SetDevice(config, &setup));
  RETURN_IF_ERROR(SetAttention(config, model, &setup));
  RETURN_IF_ERROR(SetLengths(config, model, &setup));
  RETURN_IF_ERROR(SetBatch(config, &setup));
  RETURN_IF_ERROR(SetGraphs(config, &setup));
  SetScheduling(config, &setup);
  ASSIGN_OR_RETURN(setup.kv_events, ParseKvEventsConfig(config.kv_events_config));
  setup.engine.kv_cache.enable_events = setup.kv_events.publishes() && config.enable_prefix_caching;
  setup.runner.limits.vocab_size = static_cast<int32_t>(model.vocab_size);
  setup.runner.limits.sliding_window = model.UniformWindow();
  setup.runner.max_logprobs = config.max_logprobs;
  setup.runner.logprobs_mode = LogprobsModeOf(config.logprobs_mode);
  setup.runner.process_seed = static_cast<uint64_t>(config.seed);
  setup.kv_cache = {.num_blocks = config.num_gpu_blocks_override,
                    .bytes = config.kv_cache_memory_bytes,
                    .utilization = config.gpu_memory_utilization};
  // On few cores a step of a large model takes minutes.
  setup.step_timeout_s =
      config.execute_model_timeout_seconds.value_or(setup.device == "cuda" ? 300 : 1800);
  // A host is shared, a device is ours.
  if (setup.device == "cuda" && !setup.kv_cache.utilization) {
    setup.kv_cache.utilization = kDefaultUtilization;
  }
  return setup;
}

Status SizeKvCache(int64_t bytes_per_block, const HostMemory& memory, EngineSetup* setup) {
  ExecutorLimits& limits = setup->runner.limits;
  const std::optional<MemoryPlan>& plan = setup->memory_plan;
  const HostMemory left = plan && !plan->is_device ? LessStep(memory, *plan) : memory;
  ASSIGN_OR_RETURN(limits.num_blocks,
                   ChooseNumBlocks(setup->kv_cache, bytes_per_block, limits, left));
  if (setup->auto_max_model_len) {
    limits.max_model_len = MaxModelLenOf(limits.num_blocks - 1, limits);
  }
  return OkStatus();
}

}  // namespace tandem
