#include "frontend/tracing/request_trace.h"

#include <map>
#include <optional>
#include <string>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr RequestTrace::Arrival kArrival = {.unix_time = 1000, .monotonic = 50};

TracedChoice Finished() {
  return {.id = "cmpl-1",
          .end = 54,
          .finish_reason = "stop",
          .num_prompt_tokens = 7,
          .num_output_tokens = 3,
          .time_to_first_token_s = 2,
          .queue_s = 0.5,
          .prefill_s = 1,
          .decode_s = 1.5,
          .inference_s = 2.5};
}

const AttributeValue* Find(const Span& span, const std::string& key) {
  for (const auto& [name, value] : span.attributes) {
    if (name == key) return &value;
  }
  return nullptr;
}

TEST_CASE("request trace: the request's span and its phases") {
  const TraceContext parent = {{1, 2}, 3, true, "a=b"};
  RequestTrace trace(nullptr, parent.trace_id, parent, kArrival);
  trace.SetRequest({.top_p = 0.9, .temperature = 0.5, .max_tokens = 16, .n = 1});
  trace.OnSubmitted(50.25);
  const std::vector<Span> spans = trace.SpansOf(Finished());
  REQUIRE(spans.size() == 5);
  const Span& whole = spans[0];
  CHECK(whole.name == "llm_request");
  CHECK(whole.is_server);
  CHECK(whole.parent_id == 3);
  CHECK(whole.state == "a=b");
  CHECK(whole.begin == 1000);
  CHECK(whole.end == 1004);
  CHECK(std::get<std::string>(*Find(whole, "gen_ai.request.id")) == "cmpl-1");
  CHECK(std::get<int64_t>(*Find(whole, "gen_ai.usage.prompt_tokens")) == 7);
  CHECK(std::get<int64_t>(*Find(whole, "gen_ai.usage.completion_tokens")) == 3);
  CHECK(std::get<double>(*Find(whole, "gen_ai.latency.e2e")) == 4);
  CHECK(std::get<double>(*Find(whole, "gen_ai.latency.time_to_first_token")) == 2);
  CHECK(std::get<double>(*Find(whole, "gen_ai.latency.time_in_model_inference")) == 2.5);
  CHECK(std::get<double>(*Find(whole, "gen_ai.request.temperature")) == 0.5);
  const std::map<std::string_view, std::pair<double, double>> want = {{"prepare", {1000, 1000.25}},
                                                                      {"queue", {1000.5, 1001}},
                                                                      {"prefill", {1001, 1002}},
                                                                      {"decode", {1002, 1003.5}}};
  for (size_t i = 1; i < spans.size(); ++i) {
    INFO(spans[i].name);
    CHECK(spans[i].parent_id == whole.id);
    CHECK(spans[i].trace_id == whole.trace_id);
    CHECK_FALSE(spans[i].is_server);
    CHECK(std::pair(spans[i].begin, spans[i].end) == want.at(spans[i].name));
  }
}

TEST_CASE("request trace: what is 0 is left out, as in vLLM") {
  RequestTrace trace(nullptr, {1, 2}, {}, kArrival);
  trace.SetRequest({.top_p = 1, .temperature = 0, .max_tokens = 16, .n = 2});
  const Span whole = trace.SpansOf(Finished()).front();
  CHECK(whole.parent_id == 0);
  CHECK(Find(whole, "gen_ai.request.temperature") == nullptr);
  CHECK(Find(whole, "gen_ai.request.top_p") != nullptr);
  CHECK(std::get<int64_t>(*Find(whole, "gen_ai.request.n")) == 2);
}

TEST_CASE("request trace: phases stay inside the request") {
  RequestTrace trace(nullptr, {1, 2}, {}, kArrival);
  trace.OnSubmitted(50.25);
  TracedChoice choice = Finished();
  choice.queue_s = 5;  // the engine's clock says more than there was
  choice.decode_s = 9;
  for (const Span& span : trace.SpansOf(choice)) {
    INFO(span.name);
    CHECK(span.begin >= 1000);
    CHECK(span.begin <= span.end);
    CHECK(span.end <= 1004);
  }
}

TEST_CASE("request trace: given up in the queue, and failed") {
  RequestTrace trace(nullptr, {1, 2}, {}, kArrival);
  trace.OnSubmitted(50.25);
  TracedChoice aborted = {.id = "x", .end = 51, .finish_reason = "abort", .is_aborted = true};
  const std::vector<Span> spans = trace.SpansOf(aborted);
  REQUIRE(spans.size() == 3);
  CHECK(spans[0].name == "llm_request_aborted");
  CHECK(spans[0].error.empty());
  CHECK(Find(spans[0], "gen_ai.latency.time_to_first_token") == nullptr);
  CHECK(spans[2].name == "queue");
  CHECK(spans[2].begin == 1000.25);
  CHECK(spans[2].end == 1001);
  TracedChoice failed = Finished();
  failed.error = "the engine died";
  CHECK(trace.SpansOf(failed)[0].name == "llm_request");
  CHECK(trace.SpansOf(failed)[0].error == "the engine died");
}

TEST_CASE("tracer: the caller's trace goes on, else one begins") {
  const Tracer tracer(nullptr, Sampler());
  const auto continued =
      tracer.Begin("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "", kArrival);
  REQUIRE(continued);
  CHECK(HexText(continued->trace_id()) == "0af7651916cd43dd8448eb211c80319c");
  CHECK_FALSE(
      tracer.Begin("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "", kArrival));
  const auto begun = tracer.Begin("nonsense", "", kArrival);
  REQUIRE(begun);
  CHECK(begun->trace_id().is_set());
}

}  // namespace
}  // namespace tandem
