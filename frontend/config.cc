#include "frontend/config.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/log_level.h"
#include "common/read_file.h"
#include "common/strings.h"
#include "common/version.h"
#include "frontend/http/api_keys.h"
#include "frontend/metrics/hidden_metrics.h"
#include "gguf/gguf_file.h"
#include "proto_msgpack/handshake_address.h"
#include "proto_msgpack/tcp_keys.h"

namespace tandem {

namespace fs = std::filesystem;

// clang-format off
std::vector<Flag> FrontendFlags(FrontendConfig& c) {
  return {
      {"model", &c.model, "Model folder (config.json, tokenizer.json, …), or a .gguf file", {.env = "MODEL", .positional = true}},
      {"served-model-name", &c.api.served_model_names, "Names of the model in the API; the first is in responses and metrics. Default: --model"},
      {"tokenizer", &c.tokenizer, "Folder of the tokenizer, or a .gguf file. Default: --model"},
      {"chat-template", &c.chat_template, "File with a Jinja template, the template itself, or the name of one of the model's. Default: the model's"},
      {"trust-request-chat-template", &c.input.trust_request_chat_template, "Requests may bring a chat template of their own"},
      {"default-chat-template-kwargs", &c.default_chat_template_kwargs, "JSON object of template variables for requests that do not set them"},
      {"generation-config", &c.generation_config, "auto: sampling defaults from the model's file; vllm: none; else a folder"},
      {"override-generation-config", &c.override_generation_config, "JSON object whose values replace those of the generation config"},
      {"hf-overrides", &c.hf_overrides, "JSON object whose keys replace those of config.json, in objects below them too"},
      {"runner", &c.pooling.runner, "generate: text; pooling: vectors or scores of texts; auto: pooling if the model's files are an embedder's or a classifier's", {.choices = {"auto", "generate", "pooling"}}},
      {"convert", &c.pooling.convert, "Makes an embedder (of the last token's state) or a classifier of a model that generates, with --runner pooling; none forbids it", {.choices = {"auto", "none", "embed", "classify"}}},
      {"pooler-config", &c.pooling.pooler_config, "JSON object in place of what the model's files say: pooling_type (LAST, CLS or MEAN), task (token_embed or token_classify: a row for each token) and use_activation (false: no length of 1, no probabilities)"},
      {"chat-template-content-format", &c.input.content_format, "Form in which templates get a message's content: string, openai (a list of parts), or auto: what the template reads", {.choices = {"auto", "string", "openai"}}},
      {"reasoning-effort-map", &c.reasoning_effort_map, "JSON object: what reasoning_effort of a request becomes for the chat template, e.g. {\"max\": \"high\"}"},
      {"exclude-tools-when-tool-choice-none", &c.input.exclude_tools_when_tool_choice_none, "Do not show tools to the template when tool_choice is none"},
      {"enable-trace-replay", &c.input.enable_trace_replay, "Accept requests to /inference/v1/generate whose outputs are given"},
      {"enable-prompt-embeds", &c.input.enable_prompt_embeds, "Accept completions whose prompt is embeddings; only for trusted clients"},
      {"response-role", &c.input.response_role, "Role of the messages that the model writes"},
      {"tool-call-parser", &c.tool_call_parser, "Format of the model's tool calls, or none. Default: what its chat template shows"},
      {"reasoning-parser", &c.reasoning_parser, "Format of the model's reasoning, or none. Default: what its chat template shows"},
      {"reasoning-config", &c.reasoning_config, "JSON object with reasoning_start_str and reasoning_end_str, for thinking_token_budget. Default: the reasoning parser's markers"},
      {"tool-strict-level", &c.tool_strict_level, "How closely calls are held to tools that are not strict: auto, function (its name), parameter (its schema)", {.choices = {"auto", "function", "parameter"}}},
      {"enforce-strict-tool-calling", &c.input.parsers.enforce_strict_tool_calling, "Hold calls to grammars of the parser's own format; off: only calls that tool_choice forces are held, and are JSON", {.env = "ENFORCE_STRICT_TOOL_CALLING"}},
      {"enable-auto-tool-choice", &c.input.parsers.enable_auto_tool_choice, "Let the model decide whether it calls the tools of a request"},
      {"anthropic-disabled-thinking-effort", &c.input.anthropic_disabled_thinking_effort, "Reasoning effort for /v1/messages without thinking: none, low, or auto: what the chat template heeds", {.choices = {"auto", "none", "low"}}},
      {"limit-mm-per-prompt", &c.media.limit_mm_per_prompt, "JSON object: the most images of one prompt, e.g. {\"image\": 4}; {\"image\": 0} serves the model as one of texts"},
      {"language-model-only", &c.media.language_model_only, "Serve a model that takes images as one of texts"},
      {"allowed-media-domains", &c.media.access.domains, "Hosts whose http(s) URLs of images are fetched. Default: none"},
      {"allowed-local-media-path", &c.media.access.local_path, "Folder whose files requests may name as images, by file:// URLs; only for trusted clients. Default: none"},
      {"media-url-allow-redirects", &c.media.access.follows_redirects, "Follow redirects of such hosts to each other", {.env = "MEDIA_URL_ALLOW_REDIRECTS"}},
      {"media-egress-block-private", &c.media.access.public_addresses_only, "Refuse images of hosts whose addresses are private, loopback, link-local or reserved", {.env = "MEDIA_EGRESS_BLOCK_PRIVATE"}},
      {"image-fetch-timeout", &c.media.access.fetch_timeout_s, "Seconds to fetch an image from its URL", {.min = 0.1, .max = 3600, .env = "IMAGE_FETCH_TIMEOUT"}},
      {"media-loading-thread-count", &c.media.media_loading_thread_count, "Threads that fetch URLs and read files of images", {.min = 1, .max = 1024, .env = "MEDIA_LOADING_THREAD_COUNT"}},
      {"max-image-bytes", &c.media.access.max_bytes, "A request with a larger image, as it is sent or fetched, gets 400", {.min = 1, .max = 64 << 20}},
      {"max-image-input-bytes", &c.media.max_image_input_bytes, "A request whose images take more bytes as the model gets them, in all its choices, gets 400", {.min = 1, .max = MediaFlags::kMostImageInputBytes}},
      {"mm-processor-kwargs", &c.media.mm_processor_kwargs, "JSON object: how images are prepared, in place of the model's preprocessor_config.json, e.g. {\"max_pixels\": 1000000}"},
      {"trust-request-mm-kwargs", &c.media.trust_request_mm_kwargs, "Requests may bring mm_processor_kwargs of their own"},
      {"mm-processor-cache-gb", &c.media.mm_processor_cache_gb, "GiB of memory for prepared images that may come again; 0: none are kept", {.min = 0, .max = 1 << 20}},
      {"media-io-kwargs", &c.media.media_io_kwargs, "JSON object: how images are decoded; RGB over white is all there is: {\"image\": {\"image_mode\": \"RGB\"}}"},
      {"max-logprobs", &c.input.max_logprobs, "Most logprobs a request may ask for; -1: the vocabulary", {.min = -1, .max = 1 << 20}},

      {"host", &c.server.host, "Address to listen on. Default: all interfaces"},
      {"port", &c.server.port, "Port to listen on; 0: any free one", {.min = 0, .max = 65535}},
      {"uds", &c.server.uds, "Listen on this UNIX socket in place of host and port"},
      {"root-path", &c.server.root_path, "Path that a proxy before the server has removed, or left, e.g. /llm"},
      {"port-file", &c.port_file, "Write the bound port to this file once it is open"},
      {"api-server-count", &c.api_server_count, "Network threads, each with its own connections", {.min = 1, .max = 256, .short_name = "asc"}},
      {"text-threads", &c.text_threads, "Threads for templates and tokenizing; 0: half the CPUs, at most 8", {.min = 0, .max = 256}},
      {"ssl-certfile", &c.tls.certificate, "PEM certificate chain; turns on HTTPS"},
      {"ssl-keyfile", &c.tls.key, "PEM key. Default: in --ssl-certfile"},
      {"ssl-ca-certs", &c.tls.client_ca, "PEM file of authorities; clients must present a certificate that one of them signed"},
      {"ssl-cert-reqs", &c.ssl_cert_reqs, "2: clients must present a certificate, which --ssl-ca-certs alone turns on; 0: without --ssl-ca-certs", {.min = 0, .max = 2}},
      {"ssl-ciphers", &c.tls.ciphers, "OpenSSL cipher list for TLS 1.2"},

      {"api-key", &c.api_keys, "Keys, one of which requests must carry as a bearer token or as X-Api-Key", {.env = "API_KEY", .secret = true}},
      {"api-key-file", &c.api_key_file, "File with one key per line, read again on SIGHUP. Default: api-keys among systemd's credentials"},
      {"cache-salt-by-api-key", &c.server.salts_by_key, "Requests share cached prefixes only with those of the same API key"},
      {"allowed-origins", &c.allowed_origins, "CORS: JSON list of origins, [\"*\"] for all"},
      {"allowed-methods", &c.allowed_methods, "CORS: JSON list of methods"},
      {"allowed-headers", &c.allowed_headers, "CORS: JSON list of headers"},
      {"allow-credentials", &c.server.cors.credentials, "CORS: allow credentials"},

      {"enable-request-id-headers", &c.server.request_id_headers, "Send X-Request-Id: the client's, else a new one"},
      {"enable-prompt-tokens-details", &c.api.enable_prompt_tokens_details, "Show cached prompt tokens in usage"},
      {"enable-force-include-usage", &c.api.enable_force_include_usage, "Usage in every stream, requested or not"},
      {"return-tokens-as-token-ids", &c.api.return_tokens_as_token_ids, "Logprobs name tokens as token_id:N"},
      {"fingerprint-mode", &c.fingerprint_mode, "system_fingerprint of responses: full (name, version, and -batch-invariant where the bits of a response depend on its request alone), custom (the next flag's value), none (null)", {.choices = {"full", "custom", "none"}}},
      {"fingerprint-value", &c.fingerprint_value, "Text of --fingerprint-mode custom"},
      {"enable-per-request-metrics", &c.api.enable_per_request_metrics, "Show in responses with one choice how long each stage took"},
      {"enable-server-load-tracking", &c.enable_server_load_tracking, "/load counts the open requests"},
      {"enable-tokenizer-info-endpoint", &c.enable_tokenizer_info_endpoint, "Show the tokenizer's configuration and the chat template at /tokenizer_info"},
      {"disable-fastapi-docs", &c.disable_fastapi_docs, "No /openapi.json and no /docs"},
      {"enable-dashboard", &c.enable_dashboard, "A page of live requests, engines and latencies at /dashboard. Default: with `tandem serve`, where --host is this machine alone"},
      {"server-dev-mode", &c.server_dev_mode, "Routes that pause the engines, reset caches and show the configuration", {.env = "SERVER_DEV_MODE"}},
      {"lora-modules", &c.lora_module_items, "LoRA adapters to load before the server serves: name=path, or JSON objects with name, path and, if need be, base_model_name; the engines need --enable-lora"},
      {"enable-runtime-lora", &c.enable_runtime_lora, "Routes that load and unload LoRA adapters: /v1/load_lora_adapter, /v1/unload_lora_adapter", {.env = "ALLOW_RUNTIME_LORA_UPDATING"}},
      {"lora-resolver-cache-dir", &c.lora_resolver_cache_dir, "Folder of LoRA adapters, each in a folder of its own, by whose name a request has one loaded", {.env = "LORA_RESOLVER_CACHE_DIR"}},
      {"skip-model-name-validation", &c.api.skip_model_name_validation, "Requests may name any model", {.env = "SKIP_MODEL_NAME_VALIDATION"}},
      {"enable-responses-api-store", &c.enable_responses_api_store, "Keep responses of /v1/responses in memory, to be fetched, continued, cancelled or run in the background", {.env = "ENABLE_RESPONSES_API_STORE"}},
      {"stream-interval", &c.api.stream_interval, "Tokens between two events of a stream", {.min = 1, .max = 1024}},
      {"sse-keep-alive-interval", &c.server.sse_keep_alive_s, "Seconds of silence after which a stream gets a comment; 0: never", {.min = 0, .max = 3600}},

      {"max-request-body-bytes", &c.server.limits.body_bytes, "Larger request bodies get 413; 0: no limit", {.min = 0, .max = 1ll << 40, .env = "HTTP_MAX_REQUEST_BODY_SIZE"}},
      {"max-header-bytes", &c.server.limits.header_bytes, "Larger request heads get 431", {.min = 1024, .max = 1 << 30}},
      {"h11-max-header-count", &c.server.limits.num_headers, "More header fields get 431", {.min = 1, .max = 1 << 16}},
      {"max-connections", &c.server.limits.num_connections, "More connections get 503", {.min = 1, .max = 1 << 20}},
      {"max-unsent-bytes", &c.server.limits.unsent_bytes_per_stream, "A stream whose client leaves more bytes unread is closed", {.min = 4096, .max = 1 << 30}},
      {"max-n-sequences", &c.input.max_n_sequences, "Most choices of a request, over all its prompts", {.min = 1, .max = 16384, .env = "MAX_N_SEQUENCES"}},
      {"max-beam-width", &c.input.max_beam_width, "Most beams of a search", {.min = 1, .max = 1024}},
      {"max-completion-prompts", &c.input.max_completion_prompts, "Most prompts of a request", {.min = 1, .max = 1 << 20, .env = "MAX_COMPLETION_PROMPTS"}},
      {"max-stop-strings", &c.input.max_stop_strings, "Most stop strings of a request", {.min = 0, .max = 1 << 16, .env = "MAX_STOP_STRINGS"}},
      {"max-num-bad-words", &c.input.max_bad_words, "Most spellings of a request's bad words", {.min = 0, .max = 1 << 16, .env = "MAX_NUM_BAD_WORDS"}},
      {"max-bad-words-total-tokens", &c.input.max_bad_words_total_tokens, "Most tokens of a request's bad words", {.min = 0, .max = 1 << 20, .env = "MAX_BAD_WORDS_TOTAL_TOKENS"}},
      {"max-num-queued-reqs", &c.admission.max_num_queued_reqs, "More requests without a first token get 503; 0: no limit", {.min = 0, .live = true}},
      {"max-num-queued-tokens", &c.admission.max_num_queued_tokens, "More prompt tokens without a first token get 503; 0: no limit", {.min = 0, .live = true}},
      {"max-stored-responses", &c.stored_responses.num_entries, "Most responses kept; the one that was not used for the longest time makes room", {.min = 1, .max = 1 << 24}},
      {"max-stored-response-bytes", &c.stored_responses.num_bytes, "Most bytes of kept responses and of their conversations", {.min = 4096, .max = 1ll << 50}},
      {"max-ttft", &c.admission.max_ttft_s, "Seconds to a first token beyond which new requests get 503, predicted from the queue; 0: no limit", {.min = 0, .max = 86400, .live = true}},
      {"max-requests-per-key", &c.server.limits.requests_per_key, "More open requests with one API key get 429; 0: no limit", {.min = 0, .max = 1 << 30, .live = true}},
      {"request-timeout", &c.api.request_timeout_s, "Seconds a request may take from its arrival; clients may ask for less; 0: no limit", {.min = 0, .max = 1e6, .live = true}},
      {"http-timeout-keep-alive", &c.server.limits.keep_alive_s, "Seconds a connection may be idle between requests", {.min = 0.1, .max = 86400, .env = "HTTP_TIMEOUT_KEEP_ALIVE"}},
      {"http-timeout-head", &c.server.limits.head_s, "Seconds for a request's head to arrive", {.min = 0.1, .max = 3600}},
      {"http-timeout-body", &c.server.limits.body_s, "Seconds for a request's body to arrive", {.min = 0.1, .max = 86400}},
      {"http-timeout-write", &c.server.limits.write_s, "Seconds a client may leave a finished response unread", {.min = 0.1, .max = 86400}},
      {"shutdown-timeout", &c.shutdown_timeout, "Seconds that running requests have after SIGTERM; 0: ended at once", {.min = 0, .max = 86400}},

      {"handshake-address", &c.handshake_address, "Where engines connect first: ipc:///folder/name or tcp://host:port"},
      {"take-over", &c.take_over, "If a frontend serves at this handshake address already: take its sockets over once the engines are ready, and let it end after its last connection"},
      {"data-parallel-size", &c.data_parallel_size, "Engines to wait for", {.min = 1, .max = 1024, .short_name = "dp"}},
      {"data-parallel-start-rank", &c.data_parallel_start_rank, "Rank of the first of them, for metrics and X-data-parallel-rank", {.min = 0, .max = 65535, .short_name = "dpr"}},
      {"data-parallel-routing", &c.data_parallel_routing, "Which engine gets a request: load: the least loaded; prefix: the one that was sent most of its prompt before, if it is not loaded much more than others", {.choices = {"load", "prefix"}}},
      {"data-parallel-lockstep", &c.data_parallel_lockstep, "The engines are vLLM's, of a mixture whose experts they share: have them form a group, and coordinate their waves"},
      {"prefill-engines", &c.prefill_engines, "How many of the engines, the first ones, compute prompts for the others; they need a --kv-transfer-config. `tandem serve --prefill N --decode M` sets this and that", {.min = 0, .max = 1023}},
      {"prefill-min-tokens", &c.prefill_min_tokens, "With --prefill-engines: a shorter prompt is computed by the engine that decodes it. With --data-parallel-routing prefix, tokens that this one was sent before do not count", {.min = 1, .max = 1ll << 40}},
      {"engine-hang-timeout", &c.engine_health.hang_timeout_s, "Seconds without a sign of life after which an engine counts as dead, and `tandem serve` kills it; 0: never", {.min = 0, .max = 86400}},
      {"max-engine-restarts-per-request", &c.resume.max_restarts, "Deaths of its engine that a request survives; 0: none", {.min = 0, .max = 1 << 30}},
      {"resume-timeout", &c.resume.timeout_s, "Seconds that a request whose engine died waits for one that goes on with it", {.min = 0, .max = 86400}},
      {"max-resume-bytes", &c.resume.max_kept_bytes, "Memory for the tokens of running requests, which an engine needs to go on with them; requests beyond it end with their engine", {.min = 0, .max = 1ll << 50}},
      {"data-parallel-address", &c.data_parallel_address, "Address for engines on other hosts; with the next flag it sets --handshake-address", {.short_name = "dpa"}},
      {"data-parallel-rpc-port", &c.data_parallel_rpc_port, "Port for engines on other hosts", {.min = 0, .max = 65535, .short_name = "dpp"}},
      {"tcp-keys", &c.tcp_keys, "Folder of keys made by `tandem keys`, with which frontend and engines speak over tcp"},
      {"insecure-tcp", &c.insecure_tcp, "Frontend and engines speak over tcp without keys: open to everyone in the network"},

      {"settings-file", &c.settings_file, "File of lines \"name: value\" for flags that SIGHUP may change, in place of the command line's: log-level and the limits named in docs/operator/limits.md"},
      {"log-level", &c.log_level, "DEBUG, INFO, WARNING or ERROR", {.choices = LogLevelNames(), .env = "LOGGING_LEVEL", .live = true}},
      {"log-format", &c.log_format, "text or json: one JSON object per line", {.choices = {"text", "json"}, .env = "LOG_FORMAT"}},
      {"otlp-traces-endpoint", &c.otlp_traces_endpoint, "URL of an OpenTelemetry collector that takes spans as http/protobuf, e.g. http://localhost:4318/v1/traces. Default: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, else no traces"},
      {"disable-log-stats", &c.disable_log_stats, "No vllm: series, no statistics line"},
      {"deprecated-metrics", &c.show_deprecated_metrics, "Show the older names of metrics beside the present ones"},
      {"lora-info-always", &c.lora_info_always, "Show vllm:lora_requests_info also where no engine serves adapters; there are endpoint pickers that take a server without it for unhealthy"},
      {"kv-cache-metrics", &c.kv_cache_metrics, "Show how long KV blocks stay in the cache, if the engine reports it (its flag of the same name)"},
      {"enable-log-requests", &c.api.request_log.requests, "A line for each request as it arrives: its id, size and sampling parameters; at DEBUG its prompt too"},
      {"enable-log-outputs", &c.api.request_log.outputs, "With the flag before: a line with the text of each finished choice; at DEBUG its token ids too"},
      {"max-log-len", &c.api.request_log.max_len, "Most characters, or token ids, of a prompt or output in those lines. Default: all", {.min = 0}},
      {"show-hidden-metrics-for-version", &c.show_hidden_metrics_for_version, "The minor version before vLLM's: show series that were retired with this one"},
      {"custom-histogram-buckets", &c.custom_histogram_buckets, "JSON object: bounds of families of histograms, e.g. {\"time_to_first_token\": [0.05, 0.2, 1]}"},
      {"disable-uvicorn-access-log", &c.server.disable_access_log, "No line per request"},
      {"disable-access-log-for-endpoints", &c.disable_access_log_for_endpoints, "Comma-separated paths without a line per request"},
  };
}
// clang-format on

namespace {

constexpr std::string_view kCredential = "api-keys";
constexpr int64_t kMaxSettingsBytes = 1 << 16;

Status CheckFolder(std::string_view flag, const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return OkStatus();
  const std::string name = "--" + std::string(flag);
  if (!fs::exists(path, error))
    return NotFoundError(name + " " + path + ": no such folder or file");
  const auto file = FindGgufFile(path);
  return file.ok() ? OkStatus() : file.status().WithContext(name);
}

// ["a", "b"] → a, b. The form vLLM's list flags have.
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

Status FinishParsers(FrontendConfig& config) {
  ParserConfig& parsers = config.input.parsers;
  if (config.tool_strict_level == "function") parsers.strict_level = StrictLevel::kFunction;
  if (config.tool_strict_level == "parameter") parsers.strict_level = StrictLevel::kParameter;
  if (config.reasoning_config.empty()) return OkStatus();
  auto bad = InvalidArgumentError(
      "--reasoning-config " + config.reasoning_config +
      ": must be a JSON object with the texts reasoning_start_str and reasoning_end_str");
  const auto texts =
      nlohmann::json::parse(config.reasoning_config, nullptr, /*allow_exceptions=*/false);
  if (!texts.is_object()) return bad;
  for (const auto& [name, text] : texts.items()) {
    const bool is_begin = name == "reasoning_start_str";
    const bool is_known = is_begin || name == "reasoning_end_str";
    if (!is_known || !text.is_string() || text.get_ref<const std::string&>().empty()) return bad;
    (is_begin ? parsers.reasoning_begin : parsers.reasoning_end) = text.get<std::string>();
  }
  return OkStatus();
}

Status FinishEffortMap(FrontendConfig& config) {
  if (config.reasoning_effort_map.empty()) return OkStatus();
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                           "high", "xhigh",   "max"};
  const auto bad = [&config](const std::string& what) {
    return InvalidArgumentError("--reasoning-effort-map " + config.reasoning_effort_map + ": " +
                                what);
  };
  const auto rows =
      nlohmann::json::parse(config.reasoning_effort_map, nullptr, /*allow_exceptions=*/false);
  if (!rows.is_object()) return bad("must be a JSON object of efforts and texts");
  for (const auto& [effort, text] : rows.items()) {
    if (std::ranges::find(kEfforts, effort) == std::end(kEfforts)) {
      return bad(effort + " is no effort; known: none, minimal, low, medium, high, xhigh, max");
    }
    if (!text.is_string()) return bad("the value of " + effort + " must be a text");
    config.input.reasoning_efforts[effort] = text.get<std::string>();
  }
  return OkStatus();
}

Status FinishFingerprint(FrontendConfig& config) {
  const bool is_custom = config.fingerprint_mode == "custom";
  if (is_custom == config.fingerprint_value.empty()) {
    return InvalidArgumentError(
        "--fingerprint-mode custom and --fingerprint-value need each other");
  }
  std::string& fingerprint = config.api.system_fingerprint;
  fingerprint = is_custom ? config.fingerprint_value : "tandem-" + std::string(kVersion);
  if (config.fingerprint_mode == "none") fingerprint.clear();
  config.api.fingerprint_has_mode = config.fingerprint_mode == "full";
  return OkStatus();
}

// The authorities' file decides; vLLM's second flag must not contradict it.
Status CheckClientCertificates(const FrontendConfig& config) {
  const int64_t wanted = config.ssl_cert_reqs.value_or(config.tls.client_ca.empty() ? 0 : 2);
  if (wanted == (config.tls.client_ca.empty() ? 0 : 2)) return OkStatus();
  return InvalidArgumentError("--ssl-cert-reqs " + std::to_string(wanted) +
                              (config.tls.client_ca.empty()
                                   ? ": needs --ssl-ca-certs, which says whose certificates count"
                                   : ": with --ssl-ca-certs it must be 2, as every client must "
                                     "present a certificate"));
}

Status FinishServer(FrontendConfig& config) {
  RETURN_IF_ERROR(CheckClientCertificates(config));
  std::string& root = config.server.root_path;
  while (root.ends_with('/')) root.pop_back();
  if (!root.empty() && !root.starts_with('/')) {
    return InvalidArgumentError("--root-path " + root + ": must begin with a slash");
  }
  if (config.tls.certificate.empty() && !(config.tls.key + config.tls.client_ca).empty()) {
    return InvalidArgumentError("--ssl-keyfile and --ssl-ca-certs need --ssl-certfile");
  }
  ServerSettings& server = config.server;
  // An IPv6 address as URLs have it.
  if (server.host.starts_with('[') && server.host.ends_with(']')) {
    server.host = server.host.substr(1, server.host.size() - 2);
  }
  ASSIGN_OR_RETURN(server.api_keys, ReadApiKeys(config));
  if (server.salts_by_key && server.api_keys.empty()) {
    return InvalidArgumentError("--cache-salt-by-api-key needs --api-key or --api-key-file");
  }
  ASSIGN_OR_RETURN(server.cors.origins, ParseNameList("allowed-origins", config.allowed_origins));
  ASSIGN_OR_RETURN(server.cors.methods, ParseNameList("allowed-methods", config.allowed_methods));
  ASSIGN_OR_RETURN(server.cors.headers, ParseNameList("allowed-headers", config.allowed_headers));
  for (const std::string_view path : Split(config.disable_access_log_for_endpoints, ',')) {
    if (!path.empty()) server.access_log_excluded.emplace_back(StripAscii(path));
  }
  return OkStatus();
}

// The engines of a group are another program's, and meet each other at an address of a network.
Status CheckLockstep(const FrontendConfig& config) {
  if (!config.data_parallel_lockstep) return OkStatus();
  const std::string flag = "--data-parallel-lockstep: ";
  if (config.data_parallel_size < 2) {
    return InvalidArgumentError(flag + "needs a --data-parallel-size of at least 2");
  }
  if (!config.handshake_address.starts_with("tcp://")) {
    return InvalidArgumentError(flag +
                                "needs --data-parallel-address, an address of the host of "
                                "engine 0, which all engines reach");
  }
  if (!config.tcp_keys.empty()) {
    return InvalidArgumentError(flag + "the engines are vLLM's, which have no --tcp-keys");
  }
  return OkStatus();
}

}  // namespace

Status CheckApiKeys(const FrontendConfig& config) {
  for (const std::string& given : config.api_keys) {
    for (const std::string_view key : Split(given, '\n')) {
      if (key.empty()) return InvalidArgumentError("--api-key is empty");
    }
  }
  return OkStatus();
}

StatusOr<std::vector<std::string>> ReadApiKeys(const FrontendConfig& config) {
  std::vector<std::string> keys;
  RETURN_IF_ERROR(CheckApiKeys(config));
  for (const std::string& given : config.api_keys) {
    // `tandem serve` passes several in one environment variable, a line for each.
    for (const std::string_view key : Split(given, '\n')) keys.emplace_back(key);
  }
  std::string path = config.api_key_file;
  const char* credentials = std::getenv("CREDENTIALS_DIRECTORY");
  if (path.empty() && credentials != nullptr) {
    path = std::string(credentials) + "/" + std::string(kCredential);
    std::error_code error;
    if (!fs::exists(path, error)) path.clear();
  }
  if (path.empty()) return keys;
  auto from_file = ReadApiKeyFile(path);
  if (!from_file.ok()) return from_file.status().WithContext("--api-key-file");
  keys.insert(keys.end(), from_file->begin(), from_file->end());
  return keys;
}

std::vector<std::string> KeyEnvironment(const FrontendConfig& config) {
  std::string lines;
  for (const std::string& key : config.api_keys) lines += (lines.empty() ? "" : "\n") + key;
  if (lines.empty()) return {};
  return {"TANDEM_API_KEY=" + lines};
}

Status Finish(FrontendConfig& config) {
  if (config.model.empty()) return InvalidArgumentError("no model: name a model folder");
  if (config.tokenizer.empty()) config.tokenizer = config.model;
  if (config.api.served_model_names.empty()) config.api.served_model_names = {config.model};
  ASSIGN_OR_RETURN(config.lora_modules,
                   ParseAdapterModules(config.lora_module_items, config.api.served_model_names));
  if (!config.lora_resolver_cache_dir.empty()) {
    const std::string folder = AbsoluteAdapterPath(config.lora_resolver_cache_dir);
    std::error_code error;
    if (!fs::is_directory(folder, error)) {
      return NotFoundError("--lora-resolver-cache-dir " + folder + ": no such folder");
    }
    config.lora_resolver_cache_dir = folder;
  }
  RETURN_IF_ERROR(FinishFingerprint(config));
  RETURN_IF_ERROR(FinishEffortMap(config));
  ASSIGN_OR_RETURN(config.show_hidden_metrics,
                   ShowsHiddenMetrics(config.show_hidden_metrics_for_version));
  StatusOr<BucketFamilies> buckets = BucketFamilies::Parse(config.custom_histogram_buckets);
  if (!buckets.ok()) return buckets.status().WithContext("--custom-histogram-buckets");
  config.buckets = *std::move(buckets);
  if (config.api.request_log.outputs && !config.api.request_log.requests) {
    return InvalidArgumentError("--enable-log-outputs needs --enable-log-requests");
  }
  if (!config.default_chat_template_kwargs.empty()) {
    auto kwargs = ParseJson(config.default_chat_template_kwargs);
    if (!kwargs.ok()) return kwargs.status().WithContext("--default-chat-template-kwargs");
    if (!(*kwargs)->is_object()) {
      return InvalidArgumentError("--default-chat-template-kwargs " +
                                  config.default_chat_template_kwargs + ": must be a JSON object");
    }
    config.input.default_chat_template_kwargs = std::move(kwargs).value();
  }
  ASSIGN_OR_RETURN(config.traces,
                   ReadTraceOptions(config.otlp_traces_endpoint, EnvironmentVariable));
  if (config.prefill_engines >= config.data_parallel_size && config.prefill_engines > 0) {
    return InvalidArgumentError("--prefill-engines " + std::to_string(config.prefill_engines) +
                                ": must be less than --data-parallel-size " +
                                std::to_string(config.data_parallel_size) +
                                ", because other engines have to decode");
  }
  RETURN_IF_ERROR(FinishParsers(config));
  RETURN_IF_ERROR(CheckMediaFlags(config.media));
  RETURN_IF_ERROR(FinishServer(config));
  ASSIGN_OR_RETURN(
      config.handshake_address,
      wire::ResolveHandshakeAddress(config.handshake_address, config.data_parallel_address,
                                    config.data_parallel_rpc_port));
  RETURN_IF_ERROR(wire::CheckTcp(config.handshake_address, config.tcp_keys, config.insecure_tcp));
  return CheckLockstep(config);
}

StatusOr<FrontendConfig> WithSettingsFile(const FrontendConfig& config) {
  FrontendConfig changed = config;
  if (config.settings_file.empty()) return changed;
  const std::string context = "--settings-file " + config.settings_file;
  auto text = ReadFile(config.settings_file, kMaxSettingsBytes);
  if (!text.ok()) return text.status().WithContext("--settings-file");
  RETURN_IF_ERROR(ApplySettings(FrontendFlags(changed), *text).WithContext(context));
  return changed;
}

Status CheckModelFolders(const FrontendConfig& config) {
  RETURN_IF_ERROR(CheckFolder("model", config.model));
  return CheckFolder("tokenizer", config.tokenizer);
}

std::vector<std::pair<std::string, std::string>> DescribeConfig(FrontendConfig& config) {
  std::vector<std::pair<std::string, std::string>> described;
  for (const Flag& flag : FrontendFlags(config)) {
    std::string value = FlagValueText(flag).value_or("");
    if (flag.rules.secret && !value.empty()) value = "***";
    described.emplace_back(flag.name, std::move(value));
  }
  return described;
}

std::string DataAddress(const std::string& handshake_address) {
  const bool is_ipc = handshake_address.starts_with("ipc://");
  return handshake_address.substr(0, handshake_address.rfind(is_ipc ? '/' : ':'));
}

}  // namespace tandem
