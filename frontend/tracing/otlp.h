#pragma once

// Spans as OTLP's protobuf messages (opentelemetry-proto, collector/trace/v1/trace_service.proto
// and what it imports), written by hand: five small messages, whose field numbers never change.
// Pure; any thread.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/tracing/span.h"

namespace tandem {

// The process that the spans come from.
struct TraceResource {
  std::vector<Attribute> attributes;
  std::string scope_name, scope_version;  // of what made the spans
};

// ExportTraceServiceRequest; without spans it is empty, which collectors accept. Text that is not
// UTF-8 is repaired, because a collector refuses a message with such text as a whole.
std::string EncodeTraces(const TraceResource& resource, std::span<const Span> spans);

// ExportTraceServiceResponse: what the collector refused of a message that it took. Bytes that are
// no such message count as nothing.
struct TracesRefused {
  int64_t num_spans = 0;
  std::string message;
};
TracesRefused DecodeTracesReply(std::string_view bytes);

}  // namespace tandem
