#pragma once

// The engine core's flags, one row each (names are vLLM's where it has the flag). Also used by
// programs that start an engine core without linking it.
// Thread: main, before others start; const afterwards.
// Failure: a bad value is INVALID_ARGUMENT naming flag, value and what is allowed.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/flags.h"
#include "common/status.h"

namespace tandem {

struct EngineConfig {
  // model
  std::string model;
  std::string tokenizer;
  std::string hf_overrides;  // JSON
  std::string runner = "auto";
  std::string convert = "auto";
  std::string pooler_config;  // JSON
  std::string load_format = "auto";
  std::string dtype = "auto";
  std::string quantization = "auto";
  std::optional<int64_t> max_model_len;  // -1: what the KV cache holds
  int64_t seed = 0;
  bool enable_prompt_embeds = false;
  bool language_model_only = false;
  std::string limit_mm_per_prompt;
  bool disable_chunked_mm_input = false;
  int64_t max_logprobs = 20;
  std::string logprobs_mode = "raw_logprobs";

  // device
  std::string device = "auto";
  int64_t threads = 0;
  std::string cpu_isa = "auto";
  int64_t tensor_parallel_size = 1;
  int64_t pipeline_parallel_size = 1;
  bool enable_expert_parallel = false;
  std::string cpu_bind;
  double worker_timeout_seconds = 1;
  std::string attention_backend = "auto";
  bool disable_custom_all_reduce = false;
  bool enforce_eager = false;
  std::optional<int64_t> optimization_level;
  std::string compilation_config;  // JSON
  std::optional<int64_t> max_cudagraph_capture_size;
  std::vector<std::string> cudagraph_capture_sizes;

  // KV cache
  std::string kv_cache_dtype = "auto";
  std::optional<int64_t> block_size;
  std::optional<int64_t> num_gpu_blocks_override;
  std::optional<int64_t> kv_cache_memory_bytes;
  std::optional<double> gpu_memory_utilization;
  bool enable_prefix_caching = true;
  bool disable_hybrid_kv_cache_manager = false;
  std::string prefix_caching_hash_algo = "sha256_cbor";
  std::string kv_events_config;    // JSON
  std::string kv_transfer_config;  // JSON
  double kv_offloading_size = 0;   // GiB
  std::string kv_offloading_backend = "native";
  bool kv_cache_metrics = false;
  double kv_cache_metrics_sample = 0.01;

  // scheduler
  std::optional<int64_t> max_num_seqs;
  std::optional<int64_t> max_num_batched_tokens;
  std::string performance_mode = "balanced";
  bool offline = false;
  int64_t max_num_scheduled_tokens = 0;
  int64_t max_num_active_seqs = 0;
  int64_t long_prefill_token_threshold = 0;
  bool long_prefill_token_threshold_adaptive = false;
  bool enable_chunked_prefill = true;
  bool scheduler_reserve_full_isl = true;
  double watermark = 0;
  int64_t prefill_schedule_interval = 1;
  std::optional<std::string> max_step_ms;
  std::string scheduling_policy = "fcfs";
  double longest_prompt_wait = 30;
  std::optional<bool> async_scheduling;
  std::string structured_outputs_config;  // JSON
  std::string speculative_config;         // JSON
  std::string per_request_spec_decode_metrics = "none";

  // adapters
  bool enable_lora = false;
  int64_t max_loras = 1;
  std::string max_lora_rank = "16";
  std::optional<int64_t> max_cpu_loras;
  std::string lora_dtype = "auto";

  // process
  std::string handshake_address;
  std::string data_parallel_address;
  int64_t data_parallel_rpc_port = 29550;
  bool headless = false;
  std::string tcp_keys;
  bool insecure_tcp = false;
  int64_t data_parallel_rank = 0;
  int64_t data_parallel_start_rank = 0;
  std::optional<int64_t> data_parallel_size_local;
  bool take_over = false;
  bool enable_sleep_mode = false;
  double shutdown_timeout = 0;
  std::optional<double> execute_model_timeout_seconds;
  std::string log_level = "INFO";
  std::string log_format = "text";
  bool flight_recorder = true;
  std::optional<int64_t> flight_recorder_size;
  std::string flight_recorder_dir;
};

std::vector<Flag> EngineFlags(EngineConfig& config);

// Checks what needs no model and fills in defaults from the environment.
Status Finish(EngineConfig& config);

}  // namespace tandem
