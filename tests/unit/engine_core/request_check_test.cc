#include "engine_core/request_check.h"

#include <array>
#include <cmath>
#include <functional>

#include "proto_msgpack/token_ids.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

ExecutorLimits Limits() {
  ExecutorLimits limits;
  limits.max_model_len = 8;
  limits.vocab_size = 100;
  return limits;
}

wire::EngineCoreRequest Good() {
  wire::EngineCoreRequest request;
  request.request_id = "a";
  request.prompt_token_ids = {0, 99};
  return request;
}

TEST_CASE("Ingress: a plain request and the edges of every range are accepted") {
  CHECK(CheckRequest(Good(), Limits()).ok());
  wire::EngineCoreRequest request = Good();
  request.prompt_token_ids.assign(7, 1);
  wire::SamplingParams& params = request.sampling_params;
  params.max_tokens = params.min_tokens = 1;
  params.temperature = 0;
  params.top_k = -1;
  params.min_p = params.top_p = 1;
  params.logprobs = -1;
  params.seed = -5;
  params.logit_bias = {{0, -100}, {99, 100}};
  params.bad_words_token_ids = {{0}, {99, 1}};
  params.stop_token_ids = {1 << 30};
  CHECK(CheckRequest(request, Limits()).ok());
  params.max_tokens = 7;
  for (const int32_t num_prior : {1, 6}) {  // of 7 tokens
    request.own.num_prior_output_tokens = num_prior;
    CHECK(CheckRequest(request, Limits()).ok());
  }
}

TEST_CASE("Ingress: a thinking budget needs the marks of a reasoning, in the vocabulary") {
  wire::EngineCoreRequest request = Good();
  request.sampling_params.thinking_token_budget = -1;
  CHECK(CheckRequest(request, Limits()).ok());
  request.sampling_params.thinking_token_budget = -2;
  CHECK(CheckRequest(request, Limits()).message() ==
        "thinking_token_budget is -2, must be -1 or more");
  request.sampling_params.thinking_token_budget = 0;
  CHECK(CheckRequest(request, Limits()).message().find("no marks") != std::string::npos);
  request.own.reasoning =
      wire::ReasoningMarks{.begin = {1}, .end = {2}, .tool_call = {}, .forced_end = {3, 2}};
  CHECK(CheckRequest(request, Limits()).ok());
  request.own.reasoning->forced_end.push_back(100);
  CHECK(CheckRequest(request, Limits()).message() ==
        "a reasoning mark holds token id 100, the vocabulary has 100 tokens");
  request.own.reasoning->forced_end.assign(257, 2);
  CHECK(CheckRequest(request, Limits()).message() ==
        "a reasoning mark's length is 257, must be at most 256");
  request.own.reasoning->forced_end.clear();
  CHECK(!CheckRequest(request, Limits()).ok());
}

TEST_CASE("Ingress: prior outputs must follow a prompt and be fewer than max_tokens") {
  wire::EngineCoreRequest request = Good();
  request.prompt_token_ids = {1, 2, 3, 4};
  const auto check = [&](int32_t num_prior, int32_t max_tokens) {
    request.own.num_prior_output_tokens = num_prior;
    request.sampling_params.max_tokens = max_tokens;
    return CheckRequest(request, Limits());
  };
  CHECK(check(3, 16).ok());
  CHECK(check(2, 3).ok());
  CHECK(check(-1, 16).code() == StatusCode::kInvalidArgument);
  CHECK(check(4, 16).message() ==
        "num_prior_output_tokens is 4, must be between 0 and 3: less than the 4 tokens given and "
        "less than max_tokens");
  CHECK(check(3, 3).code() == StatusCode::kInvalidArgument);
}

TEST_CASE("Ingress: everything that could do harm is refused with a message") {
  using Break = std::function<void(wire::EngineCoreRequest&)>;
  const double nan = std::nan("");
  const struct {
    const char* words;
    Break apply;
  } cases[] = {
      {"id is empty", [](auto& r) { r.request_id.clear(); }},
      {"prompt is empty", [](auto& r) { r.prompt_token_ids.clear(); }},
      {"maximum context length is 8 tokens", [](auto& r) { r.prompt_token_ids.assign(8, 1); }},
      {"token id 100", [](auto& r) { r.prompt_token_ids.push_back(100); }},
      {"token id -1", [](auto& r) { r.prompt_token_ids.push_back(-1); }},
      {"pooling", [](auto& r) { r.pooling_params.packed = "\x91\xc0"; }},
      {"streaming input", [](auto& r) { r.resumable = true; }},
      {"n is 2", [](auto& r) { r.sampling_params.n = 2; }},
      {"max_tokens is 0", [](auto& r) { r.sampling_params.max_tokens = 0; }},
      {"min_tokens is 17", [](auto& r) { r.sampling_params.min_tokens = 17; }},
      {"min_tokens is -1", [](auto& r) { r.sampling_params.min_tokens = -1; }},
      {"negative",
       [](auto& r) {
         r.sampling_params.repetition_detection = {-1, 0, 2};
       }},
      {"finite", [=](auto& r) { r.sampling_params.temperature = nan; }},
      {"finite", [](auto& r) { r.sampling_params.presence_penalty = HUGE_VAL; }},
      {"temperature is -0.5", [](auto& r) { r.sampling_params.temperature = -0.5; }},
      {"top_p is 0", [](auto& r) { r.sampling_params.top_p = 0; }},
      {"top_p", [=](auto& r) { r.sampling_params.top_p = nan; }},
      {"top_k is -2", [](auto& r) { r.sampling_params.top_k = -2; }},
      {"min_p is 1.5", [](auto& r) { r.sampling_params.min_p = 1.5; }},
      {"repetition_penalty is 0", [](auto& r) { r.sampling_params.repetition_penalty = 0; }},
      {"logprobs is -2", [](auto& r) { r.sampling_params.logprobs = -2; }},
      {"prompt_logprobs is -2", [](auto& r) { r.sampling_params.prompt_logprobs = -2; }},
      {"allowed_token_ids",
       [](auto& r) {
         r.sampling_params.allowed_token_ids = {5, 100};
       }},
      {"logprob_token_ids", [](auto& r) { r.sampling_params.logprob_token_ids = {-1}; }},
      {"trace_decode_token_ids holds token id 100",
       [](auto& r) {
         r.sampling_params.trace_decode_token_ids = wire::PackedTokenIds(std::array{5, 100});
       }},
      {"array", [](auto& r) { r.sampling_params.trace_decode_token_ids.packed = "\x07"; }},
      {"trace_decode_token_ids cannot be combined with thinking_token_budget",
       [](auto& r) {
         r.sampling_params.trace_decode_token_ids = wire::PackedTokenIds(std::array{5});
         r.sampling_params.thinking_token_budget = 2;
         r.own.reasoning =
             wire::ReasoningMarks{.begin = {1}, .end = {2}, .tool_call = {}, .forced_end = {2}};
       }},
      {"bad_words",
       [](auto& r) {
         r.sampling_params.bad_words_token_ids = {{1}, {2, 100}};
       }},
      {"arrival_time", [=](auto& r) { r.arrival_time = nan; }},
      {"stop_token_ids has 101 entries",
       [](auto& r) { r.sampling_params.stop_token_ids.assign(101, 5); }},
      {"logit_bias",
       [](auto& r) {
         r.sampling_params.logit_bias = {{100, 1}};
       }},
      {"logit_bias",
       [=](auto& r) {
         r.sampling_params.logit_bias = {{1, nan}};
       }},
  };
  for (const auto& broken : cases) {
    wire::EngineCoreRequest request = Good();
    broken.apply(request);
    const Status status = CheckRequest(request, Limits());
    INFO(broken.words << " / " << status.ToString());
    CHECK_FALSE(status.ok());
    CHECK(status.message().find(broken.words) != std::string::npos);
  }
}

}  // namespace
}  // namespace tandem
