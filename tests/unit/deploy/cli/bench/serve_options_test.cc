#include "deploy/cli/bench/serve_options.h"

#include <cmath>
#include <utility>

#include "deploy/cli/bench/request_body.h"
#include "deploy/cli/bench/server_url.h"

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::json;

Status Check(const std::vector<std::string>& args, BenchServeOptions* options) {
  const StatusOr<FlagOutcome> parsed = ParseFlags(BenchServeFlags(*options), args, "test");
  return parsed.ok() ? CheckBenchServeOptions(*options) : parsed.status();
}

TEST_CASE("BenchServeFlags fills the options") {
  BenchServeOptions options;
  REQUIRE(Check({"--model", "m", "--request-rate", "inf", "--burstiness", "0.5", "--goodput",
                 "ttft:200", "tpot:50", "--max_concurrency=8", "--header", "a=b", "--num-prompts",
                 "1k", "--save-result"},
                &options)
              .ok());
  CHECK(options.model == "m");
  CHECK(std::isinf(options.request_rate));
  CHECK(options.burstiness == 0.5);
  CHECK(options.num_prompts == 1000);
  CHECK(options.max_concurrency == 8);
  CHECK(options.save_result);
  const StatusOr<Goodput> goodput = ParseGoodput(options.goodput);
  REQUIRE(goodput.ok());
  CHECK(goodput->ttft_ms == 200.0);
  CHECK_FALSE(goodput->e2el_ms);
}

TEST_CASE("CheckBenchServeOptions refuses impossible options and names the flag") {
  const std::pair<std::vector<std::string>, std::string> refusals[] = {
      {{"--request-rate", "0"}, "request-rate"},
      {{"--max-concurrency", "0"}, "max-concurrency"},
      {{"--goodput", "latency:5"}, "goodput"},
      {{"--goodput", "ttft=5"}, "goodput"},
      {{"--metric-percentiles", "99,101"}, "metric-percentiles"},
      {{"--percentile-metrics", "ttft,speed"}, "percentile-metrics"},
      {{"--dataset-name", "sharegpt"}, "dataset-path"},
      {{"--dataset-path", "x"}, "dataset-path"},
      {{"--ramp-up-strategy", "linear"}, "ramp-up-start-rps"},
      {{"--ramp-up-start-rps", "1"}, "ramp-up-strategy"},
      {{"--ramp-up-strategy", "linear", "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "2",
        "--request-rate", "3"},
       "request-rate"},
      {{"--ramp-up-strategy", "exponential", "--ramp-up-start-rps", "0", "--ramp-up-end-rps", "2"},
       "exponential"},
      {{"--extra-body", "[1]"}, "extra-body"},
      {{"--header", "novalue"}, "header"},
      {{"--metadata", "=x"}, "metadata"},
      {{"--endpoint", "v1"}, "endpoint"},
      {{"--dataset-name", "prefix_repetition", "--num-prompts", "3"}, "num-prefixes"},
      {{"--reqest-rate", "3"}, "did you mean --request-rate"},
      {{"--dataset-name", "random-mm"}, "--backend openai-chat"},
      {{"--dataset-name", "random-rerank"}, "--backend vllm-rerank"},
      {{"--backend", "vllm-rerank"}, "--dataset-name random-rerank"},
      {{"--random-batch-size", "4"}, "--random-batch-size"},
      {{"--random-mm-bucket-config", "{(1, 1, 2): 1}"}, "videos"},
      {{"--random-mm-limit-mm-per-prompt", "3"}, "--random-mm-limit-mm-per-prompt"},
      {{"--random-mm-base-items-per-request", "9", "--random-mm-limit-mm-per-prompt",
        "{\"image\": 3}"},
       "--random-mm-base-items-per-request 9"},
      {{"--backend", "openai-embeddings", "--percentile-metrics", "ttft"}, "ttft"},
      {{"--backend", "openai-embeddings", "--goodput", "tpot:5"}, "--goodput"},
  };
  for (const auto& [args, word] : refusals) {
    CAPTURE(args);
    BenchServeOptions options;
    const Status status = Check(args, &options);
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(status.message(), Catch::Contains(word));
  }
}

TEST_CASE("ParseServerUrl takes apart the usual forms") {
  const auto parsed = ParseServerUrl("http://[::1]:8000/api/");
  REQUIRE(parsed.ok());
  CHECK(parsed->host == "::1");
  CHECK(parsed->port == "8000");
  CHECK(parsed->prefix == "/api");
  CHECK(parsed->HostHeader() == "[::1]:8000");
  const auto https = ParseServerUrl("https://example.org");
  REQUIRE(https.ok());
  CHECK(https->tls);
  CHECK(https->port == "443");
  CHECK(https->HostHeader() == "example.org");
  CHECK(ParseServerUrl("unix:/run/x")->socket_path == "/run/x");
  CHECK(UrlOfHostAndPort("::1", 80) == "http://[::1]:80");
  for (const char* bad : {"ftp://x", "x:80", "http://", "http://h:", "unix:", "http://h\r\nx"}) {
    CAPTURE(bad);
    CHECK(ParseServerUrl(bad).status().code() == StatusCode::kInvalidArgument);
  }
}

TEST_CASE("RequestBody requests a stream with usage, in the API's terms") {
  BenchServeOptions options;
  options.temperature = 0;
  options.logprobs = 2;
  options.extra_body = R"({"max_tokens": 5, "user": "me"})";
  const BenchPrompt text{"hello", {}, 1, 16};
  const Json completion = Json::parse(RequestBody(options, "m", text));
  CHECK(completion == Json::parse(R"({"model": "m", "prompt": "hello", "repetition_penalty": 1.0,
    "max_tokens": 5, "logprobs": 2, "stream": true, "stream_options": {"include_usage": true},
    "ignore_eos": true, "temperature": 0.0, "user": "me"})"));

  const BenchPrompt ids{"", {4, 5}, 2, 16};
  CHECK(Json::parse(RequestBody({}, "m", ids))["prompt"] == Json({4, 5}));

  options = {};
  options.backend = "openai-chat";
  options.dataset_name = "sonnet";
  const Json chat = Json::parse(RequestBody(options, "m", text));
  CHECK(chat == Json::parse(R"({"model": "m", "messages": [{"role": "user", "content": "hello"}],
    "max_completion_tokens": 16, "stream": true, "stream_options": {"include_usage": true}})"));
}

}  // namespace
}  // namespace tandem
