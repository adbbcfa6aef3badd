#include "frontend/tracing/request_trace.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

void Add(std::string_view key, std::optional<double> value, std::vector<Attribute>* attributes) {
  if (value) attributes->emplace_back(key, *value);
}

// vLLM leaves out what is 0, so a greedy request has no temperature.
template <class T>
void AddUnlessZero(std::string_view key, const std::optional<T>& value,
                   std::vector<Attribute>* attributes) {
  if (value && *value != 0) attributes->emplace_back(key, *value);
}

std::vector<Attribute> AttributesOf(const TracedRequest& request, const TracedChoice& choice,
                                    double e2e_s) {
  std::vector<Attribute> attributes = {
      {"gen_ai.request.id", std::string(choice.id)},
      {"gen_ai.usage.prompt_tokens", choice.num_prompt_tokens},
      {"gen_ai.usage.completion_tokens", choice.num_output_tokens},
      {"gen_ai.latency.e2e", e2e_s},
  };
  Add("gen_ai.latency.time_to_first_token", choice.time_to_first_token_s, &attributes);
  Add("gen_ai.latency.time_in_queue", choice.queue_s, &attributes);
  Add("gen_ai.latency.time_in_model_prefill", choice.prefill_s, &attributes);
  Add("gen_ai.latency.time_in_model_decode", choice.decode_s, &attributes);
  Add("gen_ai.latency.time_in_model_inference", choice.inference_s, &attributes);
  AddUnlessZero("gen_ai.request.top_p", request.top_p, &attributes);
  AddUnlessZero("gen_ai.request.max_tokens", request.max_tokens, &attributes);
  AddUnlessZero("gen_ai.request.temperature", request.temperature, &attributes);
  AddUnlessZero("gen_ai.request.n", request.n, &attributes);
  attributes.emplace_back("tandem.choice", int64_t{choice.index});
  attributes.emplace_back("tandem.finish_reason", std::string(choice.finish_reason));
  attributes.emplace_back("tandem.cached_tokens", choice.num_cached_tokens);
  attributes.emplace_back("tandem.preemptions", int64_t{choice.num_preemptions});
  return attributes;
}

}  // namespace

std::vector<Span> RequestTrace::SpansOf(const TracedChoice& choice) const {
  const double begin = arrival_.unix_time, end = std::max(begin, Unix(choice.end));
  std::vector<Span> spans(1);
  Span& whole = spans.front();
  whole.trace_id = trace_id_;
  whole.id = RandomSpanId();
  whole.name = choice.is_aborted ? "llm_request_aborted" : "llm_request";
  whole.is_server = true;
  whole.begin = begin;
  whole.end = end;
  whole.attributes = AttributesOf(request_, choice, end - begin);
  whole.error = choice.error;
  if (parent_) {
    whole.parent_id = parent_->span_id;
    whole.state = parent_->state;
    whole.has_remote_parent = true;
  }
  Span part;
  part.trace_id = trace_id_;
  part.parent_id = whole.id;
  part.state = whole.state;
  // Two clocks meet here, so a phase may seem to leave the request by microseconds.
  const auto add = [&](std::string_view name, double from, double to) {
    part.id = RandomSpanId();
    part.name = name;
    part.begin = std::clamp(from, begin, end);
    part.end = std::clamp(to, part.begin, end);
    spans.push_back(part);
  };
  if (submitted_) add("prepare", begin, Unix(*submitted_));
  if (!choice.time_to_first_token_s) {
    if (submitted_) add("queue", Unix(*submitted_), end);
    return spans;
  }
  const double first_token = begin + *choice.time_to_first_token_s;
  const double scheduled = first_token - choice.prefill_s.value_or(0);
  if (choice.queue_s) add("queue", scheduled - *choice.queue_s, scheduled);
  if (choice.prefill_s) add("prefill", scheduled, first_token);
  if (choice.decode_s) add("decode", first_token, first_token + *choice.decode_s);
  return spans;
}

void RequestTrace::OnChoiceEnd(const TracedChoice& choice) { exporter_->TryAdd(SpansOf(choice)); }

std::unique_ptr<RequestTrace> Tracer::Begin(std::string_view traceparent,
                                            std::string_view tracestate,
                                            RequestTrace::Arrival arrival) const {
  std::optional<TraceContext> parent = ParseTraceContext(traceparent, tracestate);
  const TraceId trace_id = parent ? parent->trace_id : RandomTraceId();
  if (!sampler_.Samples(parent, trace_id)) return nullptr;
  return std::make_unique<RequestTrace>(exporter_, trace_id, std::move(parent), arrival);
}

}  // namespace tandem
