#pragma once

// A finished span. A value, any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/tracing/trace_id.h"

namespace tandem {

using AttributeValue = std::variant<std::string, int64_t, double>;
using Attribute = std::pair<std::string, AttributeValue>;

struct Span {
  TraceId trace_id;
  SpanId id = 0;
  SpanId parent_id = 0;    // 0: the trace's first
  std::string state;       // tracestate
  std::string_view name;   // a literal
  bool is_server = false;  // else internal: a part of one
  bool has_remote_parent = false;
  double begin = 0, end = 0;  // unix seconds
  std::vector<Attribute> attributes;
  std::string error;  // empty: it did not fail
};

}  // namespace tandem
