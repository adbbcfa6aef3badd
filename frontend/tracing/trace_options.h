#pragma once

// Where spans go and which: --otlp-traces-endpoint and OpenTelemetry's variables. Main, before
// threads start; a value afterwards. Units: seconds, spans.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "frontend/tracing/http_url.h"
#include "frontend/tracing/otlp.h"
#include "frontend/tracing/sampler.h"

namespace tandem {

struct TraceOptions {
  bool enabled = false;
  HttpUrl endpoint;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string authorities;  // PEM file for https; "": the system's
  double timeout_s = 10;    // of one request to the collector
  Sampler sampler;
  TraceResource resource;
  double delay_s = 5;  // the longest that a span waits for others to be sent with
  int64_t max_queued_spans = 2048;
  int64_t max_batch_spans = 512;
  std::vector<std::string> warnings;  // of variables without effect
};

// The value of an environment variable, or "".
using ReadVariable = std::function<std::string(const char* name)>;
std::string EnvironmentVariable(const char* name);

// endpoint: the flag's value, which wins over the variables. Not enabled without either.
// INVALID_ARGUMENT: a value that cannot be used, with what is allowed; gRPC is named so.
StatusOr<TraceOptions> ReadTraceOptions(const std::string& endpoint, const ReadVariable& variable);

// "key=value,key2=value2" with %XX in values, as OTEL_EXPORTER_OTLP_HEADERS has it.
StatusOr<std::vector<std::pair<std::string, std::string>>> ParsePairs(std::string_view text);

}  // namespace tandem
