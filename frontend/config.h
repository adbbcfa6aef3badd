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

namespace tandem {

struct FrontendConfig {
  // model
  std::string model;
  std::vector<std::string> served_model_name;
  std::string tokenizer;
  std::string chat_template;
  std::string default_chat_template_kwargs;
  std::string generation_config = "auto";
  std::string override_generation_config;
  std::string response_role = "assistant";
  int64_t max_logprobs = 20;

  // listening
  std::string host;
  int64_t port = 8000;
  std::string uds;
  std::string port_file;
  int64_t api_server_count = 1;
  int64_t text_threads = 0;
  std::string ssl_certfile;
  std::string ssl_keyfile;
  std::string ssl_ca_certs;
  std::string ssl_ciphers;

  // who may ask
  std::vector<std::string> api_key;
  std::string allowed_origins = "[]";
  std::string allowed_methods = R"(["*"])";
  std::string allowed_headers = R"(["*"])";
  bool allow_credentials = false;

  // answers
  bool enable_request_id_headers = true;
  bool enable_prompt_tokens_details = true;
  bool enable_force_include_usage = false;
  bool return_tokens_as_token_ids = false;
  bool enable_per_request_metrics = false;
  bool enable_server_load_tracking = false;
  bool server_dev_mode = false;
  bool skip_model_name_validation = false;
  int64_t stream_interval = 1;
  int64_t sse_keep_alive_interval = 0;

  // limits
  int64_t max_request_body_bytes = 32 << 20;
  int64_t max_header_bytes = 64 << 10;
  int64_t h11_max_header_count = 256;
  int64_t max_connections = 16384;
  int64_t max_unsent_bytes = 1 << 20;
  int64_t max_n_sequences = 16384;
  int64_t max_completion_prompts = 1024;
  int64_t max_stop_strings = 4;
  int64_t max_num_bad_words = 128;
  int64_t max_bad_words_total_tokens = 1024;
  int64_t max_num_queued_reqs = 0;
  int64_t max_num_queued_tokens = 0;
  double http_timeout_keep_alive = 5;
  double http_timeout_head = 30;
  double http_timeout_body = 120;
  double http_timeout_write = 30;
  double shutdown_timeout = 0;

  // engines
  std::string handshake_address;
  int64_t data_parallel_size = 1;
  double engine_hang_timeout = 60;
  std::string data_parallel_address;
  int64_t data_parallel_rpc_port = 29550;

  // logs
  std::string log_level = "INFO";
  bool disable_log_stats = false;
  bool kv_cache_metrics = false;
  bool disable_uvicorn_access_log = false;
  std::string disable_access_log_for_endpoints;
};

std::vector<Flag> FrontendFlags(FrontendConfig& config);

// What one row cannot check: files that must exist, flags that need or exclude each other, JSON
// lists. Fills what follows from others (served_model_name, tokenizer, handshake_address).
Status Finish(FrontendConfig& config);

// Each flag and its value, for people; what must stay secret is "***".
std::vector<std::pair<std::string, std::string>> DescribeConfig(FrontendConfig& config);

// ["a", "b"] → a, b. The form vLLM's list flags have.
StatusOr<std::vector<std::string>> ParseNameList(std::string_view flag, std::string_view json);

// Where engines' data sockets are bound: the folder of an ipc handshake, the host of a tcp one.
std::string DataAddress(const std::string& handshake_address);

}  // namespace tandem
