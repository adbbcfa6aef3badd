#pragma once

// The caller's span, as W3C Trace Context writes it into the headers traceparent and tracestate.
// Pure; any thread. Headers are a stranger's: what is not well-formed counts as absent.

#include <optional>
#include <string>
#include <string_view>

#include "frontend/tracing/trace_id.h"

namespace tandem {

struct TraceContext {
  TraceId trace_id;
  SpanId span_id = 0;
  bool is_sampled = false;
  std::string state;  // of other tracing systems, passed on as it came
};

// traceparent: "00-<32 hex>-<16 hex>-<2 hex>", or what later versions may append. tracestate:
// dropped alone when it is not well-formed or has more than 32 members; several headers are joined
// with commas before.
std::optional<TraceContext> ParseTraceContext(std::string_view traceparent,
                                              std::string_view tracestate);

}  // namespace tandem
