#include "deploy/cli/bench/serve_options.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/strings.h"
#include "deploy/cli/bench/bench_api.h"
#include "deploy/cli/bench/random_image.h"

namespace tandem {
namespace {

constexpr double kMaxTokens = 1 << 24;
constexpr double kMaxPrompts = 1e7;

Status CheckRamp(const BenchServeOptions& options) {
  if (options.ramp_up_strategy.empty()) {
    if (options.ramp_up_start_rps || options.ramp_up_end_rps) {
      return InvalidArgumentError(
          "--ramp-up-start-rps and --ramp-up-end-rps need --ramp-up-strategy");
    }
    return OkStatus();
  }
  if (!std::isinf(options.request_rate)) {
    return InvalidArgumentError(
        "--request-rate cannot be given with --ramp-up-strategy, which sets the rate");
  }
  if (!options.ramp_up_start_rps || !options.ramp_up_end_rps) {
    return InvalidArgumentError(
        "--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps");
  }
  if (*options.ramp_up_start_rps > *options.ramp_up_end_rps || *options.ramp_up_end_rps <= 0) {
    return InvalidArgumentError("--ramp-up-end-rps must be positive and at least the start");
  }
  if (options.ramp_up_strategy == "exponential" && *options.ramp_up_start_rps == 0) {
    return InvalidArgumentError("an exponential ramp cannot start at --ramp-up-start-rps 0");
  }
  return OkStatus();
}

Status CheckPairs(std::string_view flag, const std::vector<std::string>& items) {
  for (const std::string& item : items) {
    if (item.find('=') != item.npos && item.front() != '=') continue;
    return InvalidArgumentError("--" + std::string(flag) + " is '" + item + "', must be KEY=VALUE");
  }
  return OkStatus();
}

Status CheckDataset(const BenchServeOptions& options) {
  const bool from_file = options.dataset_name == "sharegpt" || options.dataset_name == "custom";
  if (from_file && options.dataset_path.empty()) {
    return InvalidArgumentError("--dataset-name " + options.dataset_name + " needs --dataset-path");
  }
  if (!from_file && !options.dataset_path.empty()) {
    return InvalidArgumentError("--dataset-name " + options.dataset_name +
                                " makes its prompts; --dataset-path is for sharegpt and custom");
  }
  if (options.dataset_name == "sonnet" && !options.input_len &&
      options.sonnet_prefix_len > options.sonnet_input_len) {
    return InvalidArgumentError("--sonnet-prefix-len must be at most --sonnet-input-len");
  }
  if (options.dataset_name == "prefix_repetition" &&
      options.num_prompts < options.prefix_repetition_num_prefixes) {
    return InvalidArgumentError("--num-prompts must be at least --prefix-repetition-num-prefixes");
  }
  return OkStatus();
}

// Which datasets an API can take.
Status CheckDatasetOfApi(const BenchServeOptions& options) {
  const BenchApi api = BackendOf(options.backend).api;
  const auto needs = [&](std::string_view dataset, std::string_view backend) {
    return InvalidArgumentError("--dataset-name " + std::string(dataset) + " needs --backend " +
                                std::string(backend));
  };
  if (options.dataset_name == "random-mm" && api != BenchApi::kChat) {
    return needs("random-mm", "openai-chat");
  }
  if (options.dataset_name == "random-rerank" && api != BenchApi::kRerank) {
    return needs("random-rerank", "vllm-rerank");
  }
  if (api == BenchApi::kRerank && options.dataset_name != "random-rerank") {
    return InvalidArgumentError("--backend vllm-rerank needs --dataset-name random-rerank");
  }
  const bool is_batched = IsPooled(api) && options.dataset_name.starts_with("random");
  if (options.random_batch_size > 1 && !is_batched) {
    return InvalidArgumentError(
        "--random-batch-size is for the datasets random and random-rerank of vectors and scores "
        "(--backend openai-embeddings, vllm-pooling, vllm-rerank)");
  }
  return OkStatus();
}

// Output tokens and their times, of which vectors and scores have none.
Status CheckPooled(const BenchServeOptions& options) {
  if (!IsPooled(options.backend)) return OkStatus();
  for (const std::string& name : MetricNames(options)) {
    if (name == "ttft" || name == "tpot" || name == "itl") {
      return InvalidArgumentError("--percentile-metrics " + name + ": a response of --backend " +
                                  options.backend + " has no tokens; e2el is its time");
    }
  }
  ASSIGN_OR_RETURN(const Goodput goodput, ParseGoodput(options.goodput));
  if (!goodput.ttft_ms && !goodput.tpot_ms) return OkStatus();
  return InvalidArgumentError("--goodput: a response of --backend " + options.backend +
                              " has no tokens, so e2el is its only limit");
}

Status CheckImages(const BenchServeOptions& options) {
  RETURN_IF_ERROR(ParseImageBuckets(options.random_mm_bucket_config).status());
  ASSIGN_OR_RETURN(const int64_t limit, ParseImageLimit(options.random_mm_limit_mm_per_prompt));
  const auto base = static_cast<double>(options.random_mm_base_items_per_request);
  const double least = std::floor(base * (1 - options.random_mm_num_mm_items_range_ratio));
  if (least <= static_cast<double>(limit)) return OkStatus();
  return InvalidArgumentError("--random-mm-base-items-per-request " +
                              std::to_string(options.random_mm_base_items_per_request) +
                              " is above the limit of --random-mm-limit-mm-per-prompt, " +
                              std::to_string(limit) + " images");
}

}  // namespace

std::vector<Flag> BenchServeFlags(BenchServeOptions& o) {
  const FlagRules tokens = {.min = 0, .max = kMaxTokens};
  const FlagRules some_tokens = {.min = 1, .max = kMaxTokens};
  // clang-format off
  return {
      {"backend", &o.backend, "API to use: completions (openai, vllm), chat completions, vectors (openai-embeddings, vllm-pooling) or scores", {.choices = {"openai", "vllm", "openai-chat", "openai-embeddings", "vllm-pooling", "vllm-rerank"}}},
      {"base-url", &o.base_url, "Server: http://host:port, https://host:port or unix:/path. Default: --host and --port"},
      {"host", &o.host, "Host of the server"},
      {"port", &o.port, "Port of the server", {.min = 1, .max = 65535}},
      {"endpoint", &o.endpoint, "Path of the API. Default: the backend's own, such as /v1/completions"},
      {"header", &o.headers, "KEY=VALUE of a header sent with each request; OPENAI_API_KEY in the environment makes one"},
      {"insecure", &o.insecure, "https: accept any certificate"},
      {"model", &o.model, "Model to ask for. Default: the first of /v1/models", {.positional = true}},
      {"served-model-name", &o.served_model_name, "Name sent in requests in place of --model"},
      {"tokenizer", &o.tokenizer, "Folder of the tokenizer. Default: the model's, when it is a folder here"},
      {"skip-tokenizer-init", &o.skip_tokenizer_init, "No tokenizer: prompts are token ids (chat: words), counts are the server's"},
      {"ready-check-timeout-sec", &o.ready_check_timeout_s, "Seconds to repeat a test request until the server responds; 0: no test request", {.min = 0, .max = 86400}},
      {"request-timeout-sec", &o.request_timeout_s, "A request that takes longer has failed", {.min = 0.1, .max = 7 * 86400}},

      {"dataset-name", &o.dataset_name, "Where prompts come from", {.choices = {"random", "random-mm", "random-rerank", "sharegpt", "sonnet", "prefix_repetition", "custom"}}},
      {"dataset-path", &o.dataset_path, "sharegpt: JSON file of conversations; custom: lines of JSON with \"prompt\""},
      {"num-prompts", &o.num_prompts, "Requests to send", {.min = 1, .max = kMaxPrompts}},
      {"num-warmups", &o.num_warmups, "Requests sent before the measurement", {.min = 0, .max = kMaxPrompts}},
      {"seed", &o.seed, "Of prompts and arrival times"},
      {"disable-shuffle", &o.disable_shuffle, "Keep the order of the file"},
      {"no-oversample", &o.no_oversample, "Send fewer requests when the file has fewer prompts"},
      {"input-len", &o.input_len, "Prompt length, for the dataset's own flag", some_tokens},
      {"output-len", &o.output_len, "Output length, for the dataset's own flag", some_tokens},
      {"random-input-len", &o.random_input_len, "random: tokens of a prompt", tokens},
      {"random-output-len", &o.random_output_len, "random: output tokens of a request", some_tokens},
      {"random-range-ratio", &o.random_range_ratio, "random: lengths are drawn from length * (1 - r) to length * (1 + r)", {.min = 0, .max = 0.999}},
      {"random-prefix-len", &o.random_prefix_len, "random: tokens at the start that all prompts share", tokens},
      {"random-batch-size", &o.random_batch_size, "random, random-rerank: texts, or documents, of one request for vectors or scores", {.min = 1, .max = 2048}},
      {"random-mm-base-items-per-request", &o.random_mm_base_items_per_request, "random-mm: images of a request", {.min = 0, .max = 4096}},
      {"random-mm-num-mm-items-range-ratio", &o.random_mm_num_mm_items_range_ratio, "random-mm: their number is drawn from n * (1 - r) to n * (1 + r)", {.min = 0, .max = 1}},
      {"random-mm-limit-mm-per-prompt", &o.random_mm_limit_mm_per_prompt, "random-mm: {\"image\": the most of a request}"},
      {"random-mm-bucket-config", &o.random_mm_bucket_config, "random-mm: sizes of images and how often they are drawn, {(height, width, 1): probability, ...}"},
      {"prefix-repetition-prefix-len", &o.prefix_repetition_prefix_len, "prefix_repetition: tokens of a prefix", tokens},
      {"prefix-repetition-suffix-len", &o.prefix_repetition_suffix_len, "prefix_repetition: tokens after the prefix", tokens},
      {"prefix-repetition-num-prefixes", &o.prefix_repetition_num_prefixes, "prefix_repetition: different prefixes", {.min = 1, .max = kMaxPrompts}},
      {"prefix-repetition-output-len", &o.prefix_repetition_output_len, "prefix_repetition: output tokens of a request", some_tokens},
      {"sonnet-input-len", &o.sonnet_input_len, "sonnet: tokens of a prompt", some_tokens},
      {"sonnet-output-len", &o.sonnet_output_len, "sonnet: output tokens of a request", some_tokens},
      {"sonnet-prefix-len", &o.sonnet_prefix_len, "sonnet: tokens of verse that all prompts start with", tokens},
      {"sharegpt-output-len", &o.sharegpt_output_len, "sharegpt: output tokens of a request. Default: as recorded", some_tokens},
      {"custom-output-len", &o.custom_output_len, "custom: output tokens of a request; -1: each line's \"output_tokens\"", {.min = -1, .max = kMaxTokens}},

      {"request-rate", &o.request_rate, "Requests per second; inf: all at once", {.min = 1e-6}},
      {"burstiness", &o.burstiness, "Shape of the Gamma distribution of gaps; 1: Poisson, less: bursts, inf: even", {.min = 1e-3}},
      {"max-concurrency", &o.max_concurrency, "Most requests under way at once", {.min = 1, .max = kMaxPrompts}},
      {"ramp-up-strategy", &o.ramp_up_strategy, "Let the rate grow from --ramp-up-start-rps to --ramp-up-end-rps", {.choices = {"linear", "exponential"}}},
      {"ramp-up-start-rps", &o.ramp_up_start_rps, "Requests per second of the first request", {.min = 0}},
      {"ramp-up-end-rps", &o.ramp_up_end_rps, "Requests per second of the last request", {.min = 0}},

      {"lora-modules", &o.lora_modules, "Adapters to ask for in place of the model, one for each request"},
      {"lora-assignment", &o.lora_assignment, "How requests get their adapters; random: by --seed", {.choices = {"random", "round-robin"}}},
      {"ignore-eos", &o.ignore_eos, "Outputs have their full length; always on with random prompts"},
      {"logprobs", &o.logprobs, "Logprobs to request per token", {.min = 0, .max = 1 << 20}},
      {"temperature", &o.temperature, "Default: the server's", {.min = 0, .max = 2}},
      {"top-p", &o.top_p, "Default: the server's", {.min = 0, .max = 1}},
      {"top-k", &o.top_k, "Default: the server's", {.min = -1, .max = 1 << 24}},
      {"min-p", &o.min_p, "Default: the server's", {.min = 0, .max = 1}},
      {"frequency-penalty", &o.frequency_penalty, "Default: the server's", {.min = -2, .max = 2}},
      {"presence-penalty", &o.presence_penalty, "Default: the server's", {.min = -2, .max = 2}},
      {"repetition-penalty", &o.repetition_penalty, "Default: 1 for completions, the server's for chat", {.min = 0}},
      {"extra-body", &o.extra_body, "JSON object laid over the body of each request"},
      {"request-id-prefix", &o.request_id_prefix, "X-Request-Id is this and a number. Default: bench-<8 hex digits>-"},

      {"goodput", &o.goodput, "Limits in ms of a good request: ttft:MS tpot:MS e2el:MS"},
      {"percentile-metrics", &o.percentile_metrics, "Metrics to report: some of ttft,tpot,itl,e2el,client_queue_time,e2el_including_client_queue. Default: the first three; e2el of vectors and scores"},
      {"metric-percentiles", &o.metric_percentiles, "Percentiles to report, comma-separated"},
      {"label", &o.label, "Name of this run in the result"},
      {"metadata", &o.metadata, "KEY=VALUE pairs kept in the result"},
      {"save-result", &o.save_result, "Write the result as JSON"},
      {"append-result", &o.append_result, "Append the result to the file, one line of JSON"},
      {"save-detailed", &o.save_detailed, "Keep each request's figures and text in the result"},
      {"result-dir", &o.result_dir, "Folder of the result. Default: the current one"},
      {"result-filename", &o.result_filename, "File of the result. Default: made of label, rate, model and date"},
      {"plot", &o.plot, "Draw TTFT, ITL and throughput against load into this SVG file; with --append-result of all runs in the file"},
      {"disable-tqdm", &o.disable_tqdm, "No progress bar"},
  };
  // clang-format on
}

Status CheckBenchServeOptions(const BenchServeOptions& options) {
  RETURN_IF_ERROR(CheckRamp(options));
  RETURN_IF_ERROR(CheckDataset(options));
  RETURN_IF_ERROR(CheckDatasetOfApi(options));
  RETURN_IF_ERROR(CheckImages(options));
  RETURN_IF_ERROR(CheckPairs("header", options.headers));
  RETURN_IF_ERROR(CheckPairs("metadata", options.metadata));
  RETURN_IF_ERROR(ParseGoodput(options.goodput).status());
  RETURN_IF_ERROR(ParsePercentiles(options.metric_percentiles).status());
  if (!options.percentile_metrics.empty()) {
    RETURN_IF_ERROR(ParseMetricNames(options.percentile_metrics).status());
  }
  RETURN_IF_ERROR(CheckPooled(options));
  if (!options.endpoint.empty() && options.endpoint.front() != '/') {
    return InvalidArgumentError("--endpoint is '" + options.endpoint + "', must start with /");
  }
  if (!options.extra_body.empty() &&
      !nlohmann::json::parse(options.extra_body, nullptr, false).is_object()) {
    return InvalidArgumentError("--extra-body must be a JSON object");
  }
  return OkStatus();
}

StatusOr<Goodput> ParseGoodput(const std::vector<std::string>& items) {
  Goodput goodput;
  for (const std::string& item : items) {
    const size_t colon = item.find(':');
    const std::string name = item.substr(0, colon);
    const std::optional<double> limit =
        colon == item.npos ? std::nullopt : ParseNumber<double>(item.substr(colon + 1));
    if (!limit || !(*limit >= 0)) {
      return InvalidArgumentError("--goodput is '" + item + "', must be like ttft:200 (in ms)");
    }
    if (name == "ttft") {
      goodput.ttft_ms = limit;
    } else if (name == "tpot") {
      goodput.tpot_ms = limit;
    } else if (name == "e2el") {
      goodput.e2el_ms = limit;
    } else {
      return InvalidArgumentError("--goodput has '" + name + "', must be ttft, tpot or e2el");
    }
  }
  return goodput;
}

StatusOr<std::vector<double>> ParsePercentiles(std::string_view text) {
  std::vector<double> percentiles;
  for (const std::string_view item : Split(text, ',')) {
    const std::optional<double> percent = ParseNumber<double>(StripAscii(item));
    if (!percent || !(*percent >= 0 && *percent <= 100)) {
      return InvalidArgumentError("--metric-percentiles has '" + std::string(item) +
                                  "', must be numbers between 0 and 100");
    }
    percentiles.push_back(*percent);
  }
  return percentiles;
}

StatusOr<std::vector<std::string>> ParseMetricNames(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string_view item : Split(text, ',')) {
    const std::string name(StripAscii(item));
    const std::vector<std::string_view> known(std::begin(kServeMetricNames),
                                              std::end(kServeMetricNames));
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return InvalidArgumentError("--percentile-metrics has '" + name +
                                  "', must be some of ttft, tpot, itl, e2el, client_queue_time, "
                                  "e2el_including_client_queue");
    }
    names.push_back(name);
  }
  return names;
}

std::vector<std::string> MetricNames(const BenchServeOptions& options) {
  if (options.percentile_metrics.empty()) {
    if (IsPooled(options.backend)) return {"e2el"};
    return {"ttft", "tpot", "itl"};
  }
  const StatusOr<std::vector<std::string>> names = ParseMetricNames(options.percentile_metrics);
  CHECK(names.ok()) << names.status().ToString();
  return *names;
}

StatusOr<int64_t> ParseImageLimit(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("image") && json["image"].is_number_unsigned() &&
      json["image"].get<uint64_t>() <= kMaxTokens) {
    return json["image"].get<int64_t>();
  }
  return InvalidArgumentError("--random-mm-limit-mm-per-prompt is '" + std::string(text) +
                              "', must be like {\"image\": 3}");
}

}  // namespace tandem
