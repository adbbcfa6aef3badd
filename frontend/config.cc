#include "frontend/config.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "proto_msgpack/handshake_address.h"

namespace tandem {

namespace fs = std::filesystem;

// clang-format off
std::vector<Flag> FrontendFlags(FrontendConfig& c) {
  return {
      {"model", &c.model, "Model folder (config.json, tokenizer.json, …)", {.env = "MODEL", .positional = true}},
      {"served-model-name", &c.served_model_name, "Names the API knows the model by; the first is in answers and metrics. Default: --model"},
      {"tokenizer", &c.tokenizer, "Folder of the tokenizer. Default: --model"},
      {"chat-template", &c.chat_template, "File with a Jinja template, or the template itself. Default: the model's"},
      {"default-chat-template-kwargs", &c.default_chat_template_kwargs, "JSON object of template variables for requests that do not set them"},
      {"generation-config", &c.generation_config, "auto: sampling defaults from the model's file; vllm: none; else a folder"},
      {"override-generation-config", &c.override_generation_config, "JSON object laid over the generation config"},
      {"response-role", &c.response_role, "Role of the answering side"},
      {"max-logprobs", &c.max_logprobs, "Most logprobs a request may ask for; -1: the vocabulary", {.min = -1, .max = 1 << 20}},

      {"host", &c.host, "Address to listen on. Default: all interfaces"},
      {"port", &c.port, "Port to listen on; 0: any free one", {.min = 0, .max = 65535}},
      {"uds", &c.uds, "Listen on this UNIX socket in place of host and port"},
      {"port-file", &c.port_file, "Write the bound port to this file once it is open"},
      {"api-server-count", &c.api_server_count, "Network threads, each with its own connections", {.min = 1, .max = 256, .short_name = "asc"}},
      {"text-threads", &c.text_threads, "Threads for templates and tokenizing; 0: half the CPUs, at most 8", {.min = 0, .max = 256}},
      {"ssl-certfile", &c.ssl_certfile, "PEM certificate chain; turns on HTTPS"},
      {"ssl-keyfile", &c.ssl_keyfile, "PEM key. Default: in --ssl-certfile"},
      {"ssl-ca-certs", &c.ssl_ca_certs, "PEM file of authorities; clients must show a certificate of theirs"},
      {"ssl-ciphers", &c.ssl_ciphers, "OpenSSL cipher list for TLS 1.2"},

      {"api-key", &c.api_key, "Keys, one of which requests must carry as a bearer token", {.env = "API_KEY"}},
      {"allowed-origins", &c.allowed_origins, "CORS: JSON list of origins, [\"*\"] for all"},
      {"allowed-methods", &c.allowed_methods, "CORS: JSON list of methods"},
      {"allowed-headers", &c.allowed_headers, "CORS: JSON list of headers"},
      {"allow-credentials", &c.allow_credentials, "CORS: allow credentials"},

      {"enable-request-id-headers", &c.enable_request_id_headers, "Send X-Request-Id: the client's, else a new one"},
      {"enable-prompt-tokens-details", &c.enable_prompt_tokens_details, "Show cached prompt tokens in usage"},
      {"enable-force-include-usage", &c.enable_force_include_usage, "Usage in every stream, asked for or not"},
      {"return-tokens-as-token-ids", &c.return_tokens_as_token_ids, "Logprobs name tokens as token_id:N"},
      {"enable-per-request-metrics", &c.enable_per_request_metrics, "Show in answers with one choice how long their stages took"},
      {"enable-server-load-tracking", &c.enable_server_load_tracking, "/load counts the open requests"},
      {"server-dev-mode", &c.server_dev_mode, "Routes that pause the engines, reset caches and show the configuration", {.env = "SERVER_DEV_MODE"}},
      {"skip-model-name-validation", &c.skip_model_name_validation, "Requests may name any model", {.env = "SKIP_MODEL_NAME_VALIDATION"}},
      {"stream-interval", &c.stream_interval, "Tokens between two events of a stream", {.min = 1, .max = 1024}},
      {"sse-keep-alive-interval", &c.sse_keep_alive_interval, "Seconds of silence after which a stream gets a comment; 0: never", {.min = 0, .max = 3600}},

      {"max-request-body-bytes", &c.max_request_body_bytes, "Larger request bodies get 413; 0: no limit", {.min = 0, .max = 1ll << 40, .env = "HTTP_MAX_REQUEST_BODY_SIZE"}},
      {"max-header-bytes", &c.max_header_bytes, "Larger request heads get 431", {.min = 1024, .max = 1 << 30}},
      {"h11-max-header-count", &c.h11_max_header_count, "More header fields get 431", {.min = 1, .max = 1 << 16}},
      {"max-connections", &c.max_connections, "More connections get 503", {.min = 1, .max = 1 << 20}},
      {"max-unsent-bytes", &c.max_unsent_bytes, "A stream whose client leaves more unread is cut", {.min = 4096, .max = 1 << 30}},
      {"max-n-sequences", &c.max_n_sequences, "Most choices of a request, over all its prompts", {.min = 1, .max = 16384, .env = "MAX_N_SEQUENCES"}},
      {"max-completion-prompts", &c.max_completion_prompts, "Most prompts of a request", {.min = 1, .max = 1 << 20, .env = "MAX_COMPLETION_PROMPTS"}},
      {"max-stop-strings", &c.max_stop_strings, "Most stop strings of a request", {.min = 0, .max = 1 << 16, .env = "MAX_STOP_STRINGS"}},
      {"max-num-bad-words", &c.max_num_bad_words, "Most spellings of a request's bad words", {.min = 0, .max = 1 << 16, .env = "MAX_NUM_BAD_WORDS"}},
      {"max-bad-words-total-tokens", &c.max_bad_words_total_tokens, "Most tokens of a request's bad words", {.min = 0, .max = 1 << 20, .env = "MAX_BAD_WORDS_TOTAL_TOKENS"}},
      {"max-num-queued-reqs", &c.max_num_queued_reqs, "More requests without a first token get 503; 0: no limit", {.min = 0}},
      {"max-num-queued-tokens", &c.max_num_queued_tokens, "More prompt tokens without a first token get 503; 0: no limit", {.min = 0}},
      {"http-timeout-keep-alive", &c.http_timeout_keep_alive, "Seconds a connection may be idle between requests", {.min = 0.1, .max = 86400, .env = "HTTP_TIMEOUT_KEEP_ALIVE"}},
      {"http-timeout-head", &c.http_timeout_head, "Seconds for a request's head to arrive", {.min = 0.1, .max = 3600}},
      {"http-timeout-body", &c.http_timeout_body, "Seconds for a request's body to arrive", {.min = 0.1, .max = 86400}},
      {"http-timeout-write", &c.http_timeout_write, "Seconds a client may leave an ended answer unread", {.min = 0.1, .max = 86400}},
      {"shutdown-timeout", &c.shutdown_timeout, "Seconds running requests have after SIGTERM; 0: cut at once", {.min = 0, .max = 86400}},

      {"handshake-address", &c.handshake_address, "Where engines announce themselves: ipc:///folder/name or tcp://host:port"},
      {"data-parallel-size", &c.data_parallel_size, "Engines to wait for", {.min = 1, .max = 1024, .short_name = "dp"}},
      {"engine-hang-timeout", &c.engine_hang_timeout, "Seconds after which /health gives up on an engine that does not answer it; 0: never", {.min = 0, .max = 86400}},
      {"data-parallel-address", &c.data_parallel_address, "Address for engines on other hosts; gives --handshake-address with the next flag"},
      {"data-parallel-rpc-port", &c.data_parallel_rpc_port, "Port for engines on other hosts", {.min = 0, .max = 65535}},

      {"log-level", &c.log_level, "DEBUG, INFO, WARNING or ERROR", {.choices = {"DEBUG", "INFO", "WARNING", "ERROR", "debug", "info", "warning", "error"}, .env = "LOGGING_LEVEL"}},
      {"disable-log-stats", &c.disable_log_stats, "No vllm: series, no statistics line"},
      {"kv-cache-metrics", &c.kv_cache_metrics, "Show what the engine says about the residency of KV blocks (its flag of the same name)"},
      {"disable-uvicorn-access-log", &c.disable_uvicorn_access_log, "No line per request"},
      {"disable-access-log-for-endpoints", &c.disable_access_log_for_endpoints, "Comma-separated paths without a line per request"},
  };
}
// clang-format on

namespace {

Status CheckFolder(std::string_view flag, const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return OkStatus();
  return NotFoundError("--" + std::string(flag) + " " + path + ": no such folder");
}

}  // namespace

Status Finish(FrontendConfig& config) {
  if (config.model.empty()) return InvalidArgumentError("which model? give a model folder");
  RETURN_IF_ERROR(CheckFolder("model", config.model));
  if (config.tokenizer.empty()) config.tokenizer = config.model;
  RETURN_IF_ERROR(CheckFolder("tokenizer", config.tokenizer));
  if (config.served_model_name.empty()) config.served_model_name = {config.model};
  if (config.ssl_certfile.empty() && !(config.ssl_keyfile + config.ssl_ca_certs).empty()) {
    return InvalidArgumentError("--ssl-keyfile and --ssl-ca-certs need --ssl-certfile");
  }
  for (const std::string& key : config.api_key) {
    if (key.empty()) return InvalidArgumentError("--api-key is empty");
  }
  ASSIGN_OR_RETURN(
      config.handshake_address,
      wire::ResolveHandshakeAddress(config.handshake_address, config.data_parallel_address,
                                    config.data_parallel_rpc_port));
  for (const auto& [flag, value] : {std::pair{"allowed-origins", &config.allowed_origins},
                                    {"allowed-methods", &config.allowed_methods},
                                    {"allowed-headers", &config.allowed_headers}}) {
    RETURN_IF_ERROR(ParseNameList(flag, *value).status());
  }
  return OkStatus();
}

std::vector<std::pair<std::string, std::string>> DescribeConfig(FrontendConfig& config) {
  const auto text_of = [](const auto& value) -> std::string {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, bool>) {
      return value ? "true" : "false";
    } else if constexpr (std::is_same_v<Value, std::string>) {
      return value;
    } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      std::string list;
      for (const std::string& item : value) list += (list.empty() ? "" : " ") + item;
      return list;
    } else {
      return nlohmann::json(value).dump();
    }
  };
  std::vector<std::pair<std::string, std::string>> described;
  for (const Flag& flag : FrontendFlags(config)) {
    std::string value = std::visit(
        [&text_of](const auto* target) -> std::string {
          using Target = std::decay_t<decltype(*target)>;
          if constexpr (requires(const Target& t) { t.has_value(); }) {
            return target->has_value() ? text_of(**target) : "";
          } else {
            return text_of(*target);
          }
        },
        flag.target);
    if (flag.name == "api-key" && !value.empty()) value = "***";
    described.emplace_back(flag.name, std::move(value));
  }
  return described;
}

StatusOr<std::vector<std::string>> ParseNameList(std::string_view flag, std::string_view json) {
  const auto bad = InvalidArgumentError("--" + std::string(flag) + " " + std::string(json) +
                                        ": must be a JSON list of strings");
  const auto list = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return bad;
  std::vector<std::string> names;
  for (const auto& item : list) {
    if (!item.is_string()) return bad;
    names.push_back(item.get<std::string>());
  }
  return names;
}

std::string DataAddress(const std::string& handshake_address) {
  const bool is_ipc = handshake_address.starts_with("ipc://");
  return handshake_address.substr(0, handshake_address.rfind(is_ipc ? '/' : ':'));
}

}  // namespace tandem
