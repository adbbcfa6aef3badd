#pragma once

// The options of `tandem bench serve`: one member per flag, with its default. A value; any thread.
// Rates are requests per second, lengths are tokens, times are seconds unless the name ends in ms.
//   BenchServeOptions options;
//   ParseFlags(BenchServeFlags(options), args, about);   // or set the members
//   RETURN_IF_ERROR(CheckBenchServeOptions(options));    // rules that involve several flags
//   BenchServe(options)                                  // bench_serve.h

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/flags.h"
#include "common/status.h"
#include "deploy/cli/bench/serve_metrics.h"

namespace tandem {

struct BenchServeOptions {
  // The server.
  std::string backend = "openai";  // of BenchBackends()
  // http://host:port[/prefix], https://…, or unix:/path/of/socket. Empty: host and port.
  std::string base_url;
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::string endpoint;              // empty: the backend's own path
  std::vector<std::string> headers;  // KEY=VALUE
  bool insecure = false;             // https: accept any certificate
  std::string model;                 // empty: the first of /v1/models
  std::string served_model_name;     // sent in place of model
  std::string tokenizer;             // folder; empty: the model's, when it is a folder here
  bool skip_tokenizer_init = false;
  double ready_check_timeout_s = 0;  // for repeating a test request; 0: none
  double request_timeout_s = 6 * 3600;

  // The requests.
  // random, random-mm, random-rerank, sharegpt, sonnet, prefix_repetition, custom
  std::string dataset_name = "random";
  std::string dataset_path;
  int64_t num_prompts = 1000;
  int64_t num_warmups = 0;
  int64_t seed = 0;
  bool disable_shuffle = false;
  bool no_oversample = false;
  std::optional<int64_t> input_len, output_len;  // replace the dataset's own lengths
  int64_t random_input_len = 1024;
  int64_t random_output_len = 128;
  double random_range_ratio = 0;
  int64_t random_prefix_len = 0;
  int64_t random_batch_size = 1;  // texts, or documents, of a request
  int64_t random_mm_base_items_per_request = 1;
  double random_mm_num_mm_items_range_ratio = 0;
  std::string random_mm_limit_mm_per_prompt = R"({"image": 255, "video": 1})";
  std::string random_mm_bucket_config = "{(256, 256, 1): 0.5, (720, 1280, 1): 0.5}";
  int64_t prefix_repetition_prefix_len = 256;
  int64_t prefix_repetition_suffix_len = 256;
  int64_t prefix_repetition_num_prefixes = 10;
  int64_t prefix_repetition_output_len = 128;
  int64_t sonnet_input_len = 550;
  int64_t sonnet_output_len = 150;
  int64_t sonnet_prefix_len = 200;
  std::optional<int64_t> sharegpt_output_len;  // none: as recorded
  int64_t custom_output_len = 256;             // -1: each line's "output_tokens"

  // When they are sent.
  double request_rate = std::numeric_limits<double>::infinity();
  double burstiness = 1;
  std::optional<int64_t> max_concurrency;
  std::string ramp_up_strategy;  // "", linear, exponential
  std::optional<double> ramp_up_start_rps, ramp_up_end_rps;

  // What they ask for.
  std::vector<std::string> lora_modules;   // names in place of the model's, by lora_assignment
  std::string lora_assignment = "random";  // or round-robin
  bool ignore_eos = false;                 // always with dataset random
  std::optional<int64_t> logprobs, top_k;
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> frequency_penalty, presence_penalty, repetition_penalty;
  std::string extra_body;         // JSON object laid over the body
  std::string request_id_prefix;  // of the X-Request-Id header; empty: "bench-<8 hex>-"

  // What is shown and kept.
  std::vector<std::string> goodput;  // "ttft:200" "tpot:50" "e2el:500", in ms
  std::string percentile_metrics;    // empty: ttft,tpot,itl; of vectors and scores e2el
  std::string metric_percentiles = "99";
  std::string label;
  std::vector<std::string> metadata;  // KEY=VALUE
  bool save_result = false;
  bool append_result = false;
  bool save_detailed = false;
  std::string result_dir;
  std::string result_filename;
  std::string plot;           // SVG file
  bool disable_tqdm = false;  // no progress bar
};

// Rows that point into `options`, which must outlive them.
std::vector<Flag> BenchServeFlags(BenchServeOptions& options);

// Errors name the flag, the value and what is allowed.
Status CheckBenchServeOptions(const BenchServeOptions& options);

// What --percentile-metrics may name, in the order of the report.
constexpr std::string_view kServeMetricNames[] = {
    "ttft", "tpot", "itl", "e2el", "client_queue_time", "e2el_including_client_queue"};

StatusOr<Goodput> ParseGoodput(const std::vector<std::string>& items);
StatusOr<std::vector<double>> ParsePercentiles(std::string_view text);
StatusOr<std::vector<std::string>> ParseMetricNames(std::string_view text);
// Those to report.  REQUIRES: options checked.
std::vector<std::string> MetricNames(const BenchServeOptions& options);
// The most images of a request.
StatusOr<int64_t> ParseImageLimit(std::string_view json);

}  // namespace tandem
