#pragma once

// The spans of one API request: for each of its choices a span "llm_request" with vLLM's
// attributes, and below it one for each phase: "prepare" (its arrival to the engine's queue, in the
// frontend), "queue", "prefill", "decode". A choice that the client gave up is called
// "llm_request_aborted", for vLLM leaves no span of it and searches count the others.
// Thread: the request's shard. The exporter outlives it.
//
// The frontend's stamps are its own, monotonic; what lies between two of the engine's stamps is
// placed before and after the first token, whose arrival the frontend knows.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/tracing/sampler.h"
#include "frontend/tracing/span_exporter.h"
#include "frontend/tracing/trace_context.h"

namespace tandem {

// What a request asks for.
struct TracedRequest {
  std::optional<double> top_p = {}, temperature = {};
  std::optional<int64_t> max_tokens = {}, n = {};
};

// What became of one choice. Intervals in seconds, absent where an end was never stamped.
struct TracedChoice {
  std::string_view id;  // the response's, with the prompt's number where there are several
  int index = 0;
  double end = 0;  // monotonic
  std::string_view finish_reason;
  std::string error = {};   // empty: it did not fail
  bool is_aborted = false;  // by the client
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;
  int64_t num_output_tokens = 0;
  int num_preemptions = 0;
  std::optional<double> time_to_first_token_s = {};  // from the arrival
  std::optional<double> queue_s = {}, prefill_s = {}, decode_s = {}, inference_s = {};
};

class RequestTrace {
 public:
  struct Arrival {
    double unix_time = 0;
    double monotonic = 0;
  };
  // parent: the caller's span; without one each choice's span begins the trace.
  RequestTrace(SpanExporter* exporter, TraceId trace_id, std::optional<TraceContext> parent,
               Arrival arrival)
      : exporter_(exporter), trace_id_(trace_id), parent_(std::move(parent)), arrival_(arrival) {}

  const TraceId& trace_id() const { return trace_id_; }
  void SetRequest(const TracedRequest& request) { request_ = request; }
  // It is with the engine now (monotonic).
  void OnSubmitted(double now) { submitted_ = now; }
  void OnChoiceEnd(const TracedChoice& choice);

  // For tests: what OnChoiceEnd gives to the exporter, the request's span first.
  std::vector<Span> SpansOf(const TracedChoice& choice) const;

 private:
  double Unix(double monotonic) const {
    return arrival_.unix_time + (monotonic - arrival_.monotonic);
  }

  SpanExporter* const exporter_;
  const TraceId trace_id_;
  const std::optional<TraceContext> parent_;
  const Arrival arrival_;
  TracedRequest request_;
  std::optional<double> submitted_;
};

// Decides which requests are traced. Thread: any, const.
class Tracer {
 public:
  Tracer(SpanExporter* exporter, const Sampler& sampler) : exporter_(exporter), sampler_(sampler) {}

  // Null: the request leaves no spans. Headers: traceparent, and all of tracestate with commas
  // between them.
  std::unique_ptr<RequestTrace> Begin(std::string_view traceparent, std::string_view tracestate,
                                      RequestTrace::Arrival arrival) const;

 private:
  SpanExporter* const exporter_;
  const Sampler sampler_;
};

}  // namespace tandem
