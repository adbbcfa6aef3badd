#include "engine_core/flags/engine_config.h"

#include "common/log_level.h"
#include "common/own_variable.h"
#include "common/strings.h"
#include "proto_msgpack/handshake_address.h"
#include "proto_msgpack/tcp_keys.h"

namespace tandem {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// vLLM's older form of --kv-cache-memory-bytes, in GiB.
StatusOr<std::optional<int64_t>> KvCacheSpaceFromEnvironment() {
  const std::optional<OwnVariable> variable = FindOwnVariable("CPU_KVCACHE_SPACE");
  if (!variable) return std::optional<int64_t>();
  const std::optional<double> gib = ParseNumber<double>(variable->value);
  if (!gib || !(*gib > 0 && *gib < 1e6)) {
    return InvalidArgumentError(variable->name + " is " + variable->value +
                                ", must be GiB above 0");
  }
  return std::optional<int64_t>(static_cast<int64_t>(*gib * static_cast<double>(kGiB)));
}

}  // namespace

// clang-format off
std::vector<Flag> EngineFlags(EngineConfig& c) {
  constexpr double kInt32 = 2147483647;
  return {
      {"model", &c.model, "Model folder (config.json, *.safetensors), or a .gguf file", {.env = "MODEL", .positional = true}},
      {"tokenizer", &c.tokenizer, "Folder of the tokenizer, or a .gguf file, whose tokens grammars are about. Default: --model"},
      {"hf-overrides", &c.hf_overrides, "JSON object whose keys replace those of config.json, in objects below them too"},
      {"runner", &c.runner, "generate: text; pooling: vectors or scores of texts; auto: pooling if the model's files are an embedder's or a classifier's", {.choices = {"auto", "generate", "pooling"}}},
      {"convert", &c.convert, "Makes an embedder (of the last token's state) or a classifier of a model that generates, with --runner pooling; none forbids it", {.choices = {"auto", "none", "embed", "classify"}}},
      {"pooler-config", &c.pooler_config, "JSON object in place of what the model's files say: pooling_type (LAST, CLS or MEAN), task (token_embed or token_classify: a row for each token) and use_activation (false: no length of 1, no probabilities)"},
      {"load-format", &c.load_format, "auto: as the model's path shows; safetensors; gguf; dummy: random weights of the config's shape", {.choices = {"auto", "safetensors", "gguf", "dummy"}}},
      {"dtype", &c.dtype, "Data type of computation; auto: bfloat16", {.choices = {"auto", "bfloat16", "float32"}}},
      {"quantization", &c.quantization, "How matrices are kept. auto: in the blocks or groups that a quantized checkpoint has them in, else in --dtype; none: in --dtype. Or they are quantized when the checkpoint is loaded: int8, or int4 in groups of 32 weights (int4-g128: of 128); the embedding and lm_head are int8 in each case. The method of a checkpoint that comes quantized means auto, and need not be named", {.choices = {"auto", "none", "int8", "int4", "int4-g32", "int4-g128", "awq", "auto_awq", "awq_marlin", "bitsandbytes", "compressed-tensors", "fp8", "gguf", "gptq", "auto_gptq", "gptq_marlin", "marlin", "modelopt", "modelopt_fp4", "mxfp4", "gpt_oss_mxfp4"}, .short_name = "q"}},
      {"max-model-len", &c.max_model_len, "Most tokens of a request, prompt and output; -1: what the KV cache holds. Default: the model's", {.min = -1, .max = kInt32}},
      {"seed", &c.seed, "Combined with the request's id, the seed of requests that bring none; Tandem's frontend gives each its own"},
      {"enable-prompt-embeds", &c.enable_prompt_embeds, "Accept prompts of embeddings, for which staging memory of one step is allocated"},
      {"language-model-only", &c.language_model_only, "A model that takes images: do not load its vision tower, and take texts alone"},
      {"limit-mm-per-prompt", &c.limit_mm_per_prompt, "JSON object: the most images of a prompt, which the frontend counts; {\"image\": 0} means --language-model-only"},
      {"disable-chunked-mm-input", &c.disable_chunked_mm_input, "No chunk of a prompt ends inside an image"},
      {"max-logprobs", &c.max_logprobs, "Most logprobs a request may ask for; -1: the vocabulary", {.min = -1, .max = 1 << 20}},
      {"logprobs-mode", &c.logprobs_mode, "Logprobs of the model's logits, or after masks, bias, penalties, temperature and filters; or the logits themselves", {.choices = {"raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"}}},

      {"device", &c.device, "auto: cuda if there is such a device, else cpu; reference: plain loops in float32, for tests", {.choices = {"auto", "cpu", "cuda", "reference"}}},
      {"cpu-isa", &c.cpu_isa, "cpu: instruction set of the kernels, whose results differ in their last bits; auto: the best that this CPU and its system have", {.choices = {"auto", "amx", "avx512_bf16", "avx2", "scalar"}}},
      {"threads", &c.threads, "Compute threads; 0: one for each CPU this process may use", {.min = 0, .max = 1024}},
      {"tensor-parallel-size", &c.tensor_parallel_size, "Processes that share each layer of the model, each with its rows of the matrices and, with --device cuda, a GPU. On cpu outputs stay the same", {.min = 1, .max = 64, .short_name = "tp"}},
      {"pipeline-parallel-size", &c.pipeline_parallel_size, "cpu: stages of layers, each a process (or as many as --tensor-parallel-size) of its own, with as many steps under way. Outputs stay the same", {.min = 1, .max = 8, .short_name = "pp"}},
      {"enable-expert-parallel", &c.enable_expert_parallel, "Mixtures of experts: each rank of --tensor-parallel-size has some experts as a whole, not a share of each", {.short_name = "ep"}},
      {"cpu-bind", &c.cpu_bind, "CPUs of each rank, in their order, e.g. 0-31|32-63; --threads 0 then means all of its own. Default: no rank is bound"},
      {"worker-timeout-seconds", &c.worker_timeout_seconds, "A step whose process, or that of a rank, does not run or stands still for that long ends the engine; 0: only a rank that has died", {.min = 0, .max = 86400}},
      {"attention-backend", &c.attention_backend, "cuda: attention kernels; auto: flashinfer if the build has it and it supports the model's heads, else tandem", {.choices = {"auto", "tandem", "flashinfer", "FLASHINFER"}}},
      {"disable-custom-all-reduce", &c.disable_custom_all_reduce, "cuda: ranks exchange all tensors by NCCL, also those of few rows, which otherwise go through memory that they read at each other"},
      {"enforce-eager", &c.enforce_eager, "cuda: do not capture graphs of decode steps"},
      {"optimization-level", &c.optimization_level, "cuda: 0 captures no graphs of decode steps (as --enforce-eager), 2 and 3 do; also written -O0. Default: 2", {.min = 0, .max = 3}},
      {"compilation-config", &c.compilation_config, "JSON object with vLLM's keys, of which cudagraph_mode (NONE, FULL_DECODE_ONLY), cudagraph_capture_sizes and max_cudagraph_capture_size have an effect, on cuda", {.short_name = "cc"}},
      {"max-cudagraph-capture-size", &c.max_cudagraph_capture_size, "cuda: most requests of a captured decode step; 0: none. Default: twice --max-num-seqs, at most 512", {.min = 0, .max = 65536}},
      {"cudagraph-capture-sizes", &c.cudagraph_capture_sizes, "cuda: numbers of requests for which decode steps are captured, e.g. 1 2 4 8. Default: 1, 2, 4, from 8 in steps of 8, from 256 of 16"},

      {"kv-cache-dtype", &c.kv_cache_dtype, "Data type of keys and values: int8 (a scale per token and head), int4 (rotated heads in groups of 32 numbers; cpu only), fp8 or fp8_e4m3 (with the checkpoint's scales, else 1), or --dtype by name. auto: fp8 where a compressed-tensors checkpoint has such a kv_cache_scheme, else --dtype"},
      {"block-size", &c.block_size, "Tokens of a KV block, a multiple of 32 on cpu. Default: 32, on cuda 16", {.min = 1, .max = 4096}},
      {"num-gpu-blocks-override", &c.num_gpu_blocks_override, "Number of KV blocks, regardless of memory", {.min = 2, .max = kInt32}},
      {"kv-cache-memory-bytes", &c.kv_cache_memory_bytes, "Memory of the KV cache. Default: by --gpu-memory-utilization", {.min = 1}},
      {"gpu-memory-utilization", &c.gpu_memory_utilization, "Share of memory for weights and KV cache. Default: 0.92, but at most half of the free memory and what the limits can use", {.min = 0, .max = 1}},
      {"enable-prefix-caching", &c.enable_prefix_caching, "Reuse KV blocks of equal prefixes"},
      {"disable-hybrid-kv-cache-manager", &c.disable_hybrid_kv_cache_manager, "Keep the KV of all tokens also in layers with a window, where others have none"},
      {"prefix-caching-hash-algo", &c.prefix_caching_hash_algo, "Hash of KV blocks; sha256 and xxhash mean their _cbor forms", {.choices = {"sha256_cbor", "sha256", "xxhash_cbor", "xxhash"}}},
      {"kv-cache-metrics", &c.kv_cache_metrics, "Measure residency and reuse of a sample of KV blocks; the frontend shows it with the same flag"},
      {"kv-cache-metrics-sample", &c.kv_cache_metrics_sample, "Share of KV blocks sampled", {.min = 1e-6, .max = 1}},
      {"kv-events-config", &c.kv_events_config, "Publish changes of the prefix cache over ZMQ; a JSON object with vLLM's keys: enable_kv_cache_events, endpoint, replay_endpoint, topic, buffer_steps, hwm, max_queue_size; and encoding (map, or array as llm-d reads). Default: off"},
      {"kv-transfer-config", &c.kv_transfer_config, "Move KV blocks to and from another place; a JSON object with vLLM's keys. kv_connector: OffloadingConnector (host memory of cpu_bytes_to_use in kv_connector_extra_config), ExampleConnector (files in its shared_storage_path), TandemConnector (another engine), MultiConnector (its connectors). Default: none"},
      {"kv-offloading-size", &c.kv_offloading_size, "GiB of host memory for KV blocks that the KV cache has no room for; short for an OffloadingConnector. 0: none", {.min = 0, .max = 1 << 20}},
      {"kv-offloading-backend", &c.kv_offloading_backend, "What --kv-offloading-size means", {.choices = {"native"}}},

      {"max-num-seqs", &c.max_num_seqs, "Most requests of a step. Default: 128; on cuda 256, from 70 GiB on 1024", {.min = 1, .max = 65536}},
      {"max-num-batched-tokens", &c.max_num_batched_tokens, "Most tokens of a step. Default: 2048; on cuda from 70 GiB on 8192, from 160 GiB on 16384", {.min = 1, .max = 1 << 20}},
      {"performance-mode", &c.performance_mode, "throughput: both defaults doubled", {.choices = {"balanced", "throughput"}}},
      {"offline", &c.offline, "Both defaults are for work that nobody waits for: on cpu 256 and 4096, on cuda 8192 tokens, from 70 GiB on 16384"},
      {"max-num-scheduled-tokens", &c.max_num_scheduled_tokens, "Most tokens scheduled in a step; 0: --max-num-batched-tokens", {.min = 0, .max = 1 << 20}},
      {"max-num-active-seqs", &c.max_num_active_seqs, "Most running requests; 0: --max-num-seqs", {.min = 0, .max = 65536}},
      {"long-prefill-token-threshold", &c.long_prefill_token_threshold, "Most tokens of one request in a step while others run; 0: no such limit", {.min = 0, .max = kInt32}},
      {"long-prefill-token-threshold-adaptive", &c.long_prefill_token_threshold_adaptive, "Raise that limit while there are few requests"},
      {"enable-chunked-prefill", &c.enable_chunked_prefill, "Cut prompts into pieces that fit a step"},
      {"scheduler-reserve-full-isl", &c.scheduler_reserve_full_isl, "Admit a request only when its whole prompt has room"},
      {"watermark", &c.watermark, "Share of KV blocks that an admission leaves free", {.min = 0, .max = 0.999}},
      {"prefill-schedule-interval", &c.prefill_schedule_interval, "Least number of steps between prefills while other requests decode", {.min = 1, .max = 65536}},
      {"max-step-ms", &c.max_step_ms, "Longest step in milliseconds while requests decode: prompts are cut into pieces that fit, so that a long one delays the tokens of others by no more. auto: three times the median step, at most 25 times a step of the same requests without prompts, at least 20 ms; 0: no limit. Images are computed in slices that fit, with 0 as with auto. Default: auto; 0 on cuda and with a flag that bounds the tokens of steps, --performance-mode throughput or --offline"},
      {"async-scheduling", &c.async_scheduling, "Schedule the next step while one executes. Default: on for cuda; it gains nothing on cpu"},
      {"scheduling-policy", &c.scheduling_policy, "Order of requests: fcfs (by arrival), priority, or shortest-prompt: of one priority shorter prompts first, so that under load a long one delays few", {.choices = {"fcfs", "priority", "shortest-prompt"}}},
      {"longest-prompt-wait", &c.longest_prompt_wait, "shortest-prompt: seconds by which a prompt of --max-model-len tokens is passed by later requests; a shorter one in proportion", {.min = 0, .max = 86400}},

      {"speculative-config", &c.speculative_config, "Guess tokens ahead and verify several in a step; a JSON object with vLLM's keys: method (ngram, suffix, draft_model, eagle, eagle3, mtp, medusa), model, num_speculative_tokens, prompt_lookup_min, prompt_lookup_max, suffix_decoding_*, num_speculative_tokens_per_batch_size; and adaptive (true). Outputs stay the same. Default: off", {.short_name = "sc"}},
      {"per-request-spec-decode-metrics", &c.per_request_spec_decode_metrics, "Show in responses with one choice how many of its guesses were right: summary, or detailed, with those of each step", {.choices = {"none", "summary", "detailed"}}},
      {"structured-outputs-config", &c.structured_outputs_config, "How grammars are enforced; a JSON object with vLLM's keys: backend (auto or xgrammar), disable_any_whitespace, enable_in_reasoning. Default: xgrammar, blanks in JSON as the model likes"},

      {"enable-lora", &c.enable_lora, "Serve LoRA adapters (PEFT folders) beside the model"},
      {"max-loras", &c.max_loras, "Most adapters of running requests", {.min = 1, .max = 65536}},
      {"max-lora-rank", &c.max_lora_rank, "Adapters of a larger rank are refused", {.choices = {"1", "8", "16", "32", "64", "128", "256", "320", "512"}}},
      {"max-cpu-loras", &c.max_cpu_loras, "Most adapters in memory; others are read again when they are asked for. Default: --max-loras", {.min = 1, .max = 65536}},
      {"lora-dtype", &c.lora_dtype, "Data type of adapters: --dtype by auto or by name", {.choices = {"auto", "bfloat16", "float32"}}},

      {"handshake-address", &c.handshake_address, "Address of the frontend: ipc:///folder/name or tcp://host:port"},
      {"data-parallel-address", &c.data_parallel_address, "Host of the frontend; with the next flag an alternative to --handshake-address", {.short_name = "dpa"}},
      {"data-parallel-rpc-port", &c.data_parallel_rpc_port, "Port of the frontend", {.min = 0, .max = 65535, .short_name = "dpp"}},
      {"headless", &c.headless, "The frontend is on another host, or another command's; vLLM's asks for it. For `tandem serve`: start engines only, for the frontend at --data-parallel-address"},
      {"tcp-keys", &c.tcp_keys, "Folder of keys made by `tandem keys`, with which frontend and engines speak over tcp"},
      {"insecure-tcp", &c.insecure_tcp, "Frontend and engines speak over tcp without keys: open to everyone in the network"},
      {"data-parallel-rank", &c.data_parallel_rank, "Rank of this engine among all replicas; it is added to the ports of KV events", {.min = 0, .max = 65535, .short_name = "dpn"}},
      {"data-parallel-start-rank", &c.data_parallel_start_rank, "Rank of the frontend's first engine. For `tandem serve`: the first rank of the engines it starts", {.min = 0, .max = 65535, .short_name = "dpr"}},
      {"data-parallel-size-local", &c.data_parallel_size_local, "Engines on this host, which share its CPUs and memory evenly. Default: 1; for `tandem serve`: --data-parallel-size", {.min = 0, .max = 1024, .short_name = "dpl"}},
      {"take-over", &c.take_over, "If an engine of this rank serves the frontend already: take its requests over, once the model is loaded, and let it end. Without this flag a second engine waits until the first is gone"},
      {"enable-sleep-mode", &c.enable_sleep_mode, "cpu: POST /sleep (--server-dev-mode) gives the memory of weights and KV cache back, /wake_up takes it again. The model's files stay open"},
      {"shutdown-timeout", &c.shutdown_timeout, "Seconds that running requests get after SIGTERM; 0: abort at once", {.min = 0, .max = 86400}},
      {"execute-model-timeout-seconds", &c.execute_model_timeout_seconds, "A step that takes longer ends the process; 0: no limit. Default: 300 on cuda, else 1800", {.min = 0, .max = 1e6, .env = "EXECUTE_MODEL_TIMEOUT_SECONDS"}},
      {"flight-recorder", &c.flight_recorder, "Keep what goes into the engine in memory, and write it to a file when the process fails"},
      {"flight-recorder-size", &c.flight_recorder_size, "Bytes of the flight recorder's ring and of its files. Default: 32 MiB, more for many KV blocks", {.min = 1 << 20, .max = 4294967296.0}},
      {"flight-recorder-dir", &c.flight_recorder_dir, "Folder of the flight recorder's files. Default: $STATE_DIRECTORY, else tandem in $XDG_STATE_HOME or in ~/.local/state"},
      {"log-level", &c.log_level, "DEBUG, INFO, WARNING or ERROR", {.choices = LogLevelNames(), .env = "LOGGING_LEVEL"}},
      {"log-format", &c.log_format, "text or json: one JSON object per line", {.choices = {"text", "json"}, .env = "LOG_FORMAT"}},
  };
}
// clang-format on

Status Finish(EngineConfig& config) {
  if (config.data_parallel_rank < config.data_parallel_start_rank) {
    return InvalidArgumentError(
        "--data-parallel-rank " + std::to_string(config.data_parallel_rank) +
        " is below --data-parallel-start-rank " + std::to_string(config.data_parallel_start_rank));
  }
  if (config.model.empty()) return InvalidArgumentError("which model? give a model folder");
  if (!config.kv_cache_memory_bytes) {
    ASSIGN_OR_RETURN(config.kv_cache_memory_bytes, KvCacheSpaceFromEnvironment());
  }
  ASSIGN_OR_RETURN(
      config.handshake_address,
      wire::ResolveHandshakeAddress(config.handshake_address, config.data_parallel_address,
                                    config.data_parallel_rpc_port));
  RETURN_IF_ERROR(wire::CheckTcp(config.handshake_address, config.tcp_keys, config.insecure_tcp));
  return OkStatus();
}

}  // namespace tandem
