#pragma once

// The frontend's flags, one row each (names are vLLM's where it has the flag), and every limit of
// the process. Thread: main, before others start; const afterwards.
// Failure: a bad value is INVALID_ARGUMENT naming flag, value and what is allowed.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/flags.h"
#include "common/status.h"
#include "frontend/adapters/adapter_modules.h"
#include "frontend/api/context.h"
#include "frontend/api/stored_responses.h"
#include "frontend/engine_client/engine_health.h"
#include "frontend/engine_client/resume_policy.h"
#include "frontend/http/server_options.h"
#include "frontend/media_flags.h"
#include "frontend/metrics/buckets.h"
#include "frontend/processing/input_config.h"
#include "frontend/tracing/trace_options.h"

namespace tandem {

// Grouped by the part that takes the values; the rows point straight into the parts' options.
struct FrontendConfig {
  FrontendConfig() { api.enable_prompt_tokens_details = true; }

  // model
  std::string model;
  std::string tokenizer;
  std::string chat_template;
  std::string default_chat_template_kwargs;  // JSON of input.default_chat_template_kwargs
  std::string generation_config = "auto";
  std::string override_generation_config;
  std::string hf_overrides;
  PoolingFlags pooling;              // input.pooling
  std::string reasoning_effort_map;  // JSON of input.reasoning_efforts
  std::string tool_call_parser;      // input.parsers by name, as is the next one
  std::string reasoning_parser;
  std::string reasoning_config;            // JSON of texts in input.parsers
  std::string tool_strict_level = "auto";  // input.parsers.strict_level
  InputConfig input;                       // without defaults, which the model's files give
  MediaFlags media;                        // input.images

  // HTTP
  ServerSettings server;
  std::vector<std::string> api_keys;  // of the command line; server.api_keys has all
  std::string api_key_file;
  TlsFiles tls;
  std::optional<int64_t> ssl_cert_reqs;
  std::string allowed_origins = "[]";  // JSON of server.cors, as are the next two
  std::string allowed_methods = R"(["*"])";
  std::string allowed_headers = R"(["*"])";
  std::string disable_access_log_for_endpoints;  // server.access_log_excluded, comma-separated
  std::string port_file;

  // API
  ApiOptions api;
  std::string fingerprint_mode = "full";  // api.system_fingerprint, as is the next one
  std::string fingerprint_value;
  AdmissionLimits admission;
  bool enable_responses_api_store = false;
  StoredResponseLimits stored_responses;
  bool enable_server_load_tracking = false;
  bool enable_dashboard = false;
  bool server_dev_mode = false;
  bool enable_tokenizer_info_endpoint = false;
  bool disable_fastapi_docs = false;
  std::vector<std::string> lora_module_items;  // lora_modules as they are given
  std::vector<AdapterModule> lora_modules;
  bool enable_runtime_lora = false;
  std::string lora_resolver_cache_dir;

  // process
  int64_t api_server_count = 1;
  int64_t text_threads = 0;
  double shutdown_timeout = 0;

  // engines
  std::string handshake_address;
  bool take_over = false;
  int64_t data_parallel_size = 1;
  int64_t data_parallel_start_rank = 0;
  std::string data_parallel_routing = "load";
  bool data_parallel_lockstep = false;
  int64_t prefill_engines = 0;
  int64_t prefill_min_tokens = 256;
  EngineHealthLimits engine_health = {.hang_timeout_s = 60};
  ResumeLimits resume;
  std::string data_parallel_address;
  int64_t data_parallel_rpc_port = 29550;
  std::string tcp_keys;
  bool insecure_tcp = false;

  // logs
  std::string log_level = "INFO";
  std::string log_format = "text";
  std::string otlp_traces_endpoint;
  TraceOptions traces;  // of it and of OpenTelemetry's variables
  std::string settings_file;
  bool disable_log_stats = false;
  bool kv_cache_metrics = false;
  bool show_deprecated_metrics = true;
  bool lora_info_always = false;
  std::string show_hidden_metrics_for_version;
  std::string custom_histogram_buckets;  // JSON of buckets
  bool show_hidden_metrics = false;
  BucketFamilies buckets;
};

std::vector<Flag> FrontendFlags(FrontendConfig& config);

// Checks what one row cannot: flags that need each other, JSON. Reads the API keys. Fills what
// follows from other flags (names, tokenizer, handshake_address, what JSON texts mean).
Status Finish(FrontendConfig& config);

// `config` with what --settings-file, read anew, has in place of the command line's values.
StatusOr<FrontendConfig> WithSettingsFile(const FrontendConfig& config);

// NOT_FOUND when the model's or the tokenizer's folder or file is not there. After Finish.
Status CheckModelFolders(const FrontendConfig& config);

// INVALID_ARGUMENT: one of --api-key is empty, as where a shell's variable is not set; the server
// would be open to every client.
Status CheckApiKeys(const FrontendConfig& config);

// The keys of --api-key and, read anew, of the key file: --api-key-file, or the file "api-keys"
// among systemd's credentials.
StatusOr<std::vector<std::string>> ReadApiKeys(const FrontendConfig& config);

// The variable "NAME=value" that gives a frontend the keys of --api-key, for programs that start
// one: ps shows every command line to everybody. None without keys.
std::vector<std::string> KeyEnvironment(const FrontendConfig& config);

// Each flag and its value, for people; what must stay secret is "***".
std::vector<std::pair<std::string, std::string>> DescribeConfig(FrontendConfig& config);

// Where engines' data sockets are bound: the folder of an ipc handshake, the host of a tcp one.
std::string DataAddress(const std::string& handshake_address);

}  // namespace tandem
