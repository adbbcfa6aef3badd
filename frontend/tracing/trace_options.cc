#include "frontend/tracing/trace_options.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "common/strings.h"
#include "common/version.h"

namespace tandem {
namespace {

constexpr std::string_view kTracesPath = "/v1/traces";

// A variable's value and its name, for messages.
struct Named {
  std::string name;
  std::string value;
};

// The variable for traces alone wins over the one for all signals.
Named ReadExporterVariable(const ReadVariable& variable, const std::string& what) {
  Named own = {"OTEL_EXPORTER_OTLP_TRACES_" + what, ""};
  own.value = variable(own.name.c_str());
  if (!own.value.empty()) return own;
  Named shared = {"OTEL_EXPORTER_OTLP_" + what, ""};
  shared.value = variable(shared.name.c_str());
  return shared;
}

Status BadValue(const Named& given, const std::string& allowed) {
  return InvalidArgumentError(given.name + " is '" + given.value + "', " + allowed);
}

Status CheckProtocol(const Named& protocol) {
  if (protocol.value.empty() || protocol.value == "http/protobuf") return OkStatus();
  return BadValue(protocol,
                  "must be http/protobuf: traces are sent over HTTP, to the collector's port 4318 "
                  "as a rule");
}

StatusOr<HttpUrl> ReadEndpoint(const std::string& flag, const ReadVariable& variable) {
  const Named own = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                     variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")};
  Named given = {"--otlp-traces-endpoint", flag};
  if (flag.empty()) given = own;
  bool is_base = false;  // the path of traces is below it
  if (given.value.empty()) {
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT", variable("OTEL_EXPORTER_OTLP_ENDPOINT")};
    is_base = true;
  }
  if (given.value.starts_with("grpc://") || given.value.starts_with("grpcs://")) {
    return BadValue(given,
                    "gRPC is not spoken: name the collector's address for http/protobuf, "
                    "such as http://localhost:4318/v1/traces");
  }
  StatusOr<HttpUrl> url = ParseHttpUrl(given.value);
  if (!url.ok()) return url.status().WithContext(given.name);
  while (is_base && url->target.ends_with('/')) url->target.pop_back();
  // A flag without a path means the usual one; a variable without a path means "/".
  if (is_base || (url->target.empty() && !flag.empty())) url->target += kTracesPath;
  if (url->target.empty()) url->target = "/";
  return url;
}

StatusOr<Sampler> ReadSampler(const ReadVariable& variable) {
  const Named name = {"OTEL_TRACES_SAMPLER", variable("OTEL_TRACES_SAMPLER")};
  if (name.value.empty()) return Sampler();
  StatusOr<Sampler> sampler = Sampler::Parse(name.value, variable("OTEL_TRACES_SAMPLER_ARG"));
  if (!sampler.ok()) return sampler.status().WithContext(name.name);
  return sampler;
}

// A positive whole number; `value` stays where the variable is not set.
Status ReadCount(const Named& given, int64_t* value) {
  if (given.value.empty()) return OkStatus();
  constexpr int64_t kMost = 1'000'000'000;
  const std::optional<int64_t> number = ParseNumber<int64_t>(given.value);
  if (!number || *number < 1 || *number > kMost) {
    return BadValue(given, "must be a whole number from 1 to " + std::to_string(kMost));
  }
  *value = *number;
  return OkStatus();
}

Status ReadMilliseconds(const Named& given, double* seconds) {
  auto count = static_cast<int64_t>(std::llround(*seconds * 1e3));
  RETURN_IF_ERROR(ReadCount(given, &count));
  *seconds = static_cast<double>(count) / 1e3;
  return OkStatus();
}

void SetAttribute(const std::string& key, std::string value, std::vector<Attribute>* attributes) {
  const auto it = std::ranges::find(*attributes, key, &Attribute::first);
  if (it == attributes->end()) {
    attributes->emplace_back(key, std::move(value));
  } else {
    it->second = std::move(value);
  }
}

TraceResource ReadResource(const ReadVariable& variable, std::vector<std::string>* warnings) {
  TraceResource resource;
  resource.scope_name = "vllm.llm_engine";  // whose spans they are to readers of vLLM's
  resource.scope_version = kVersion;
  std::vector<Attribute>& attributes = resource.attributes;
  attributes = {{"service.name", std::string("tandem")},
                {"service.version", std::string(kVersion)},
                {"telemetry.sdk.name", std::string("tandem")},
                {"telemetry.sdk.language", std::string("cpp")},
                {"telemetry.sdk.version", std::string(kVersion)},
                {"vllm.instrumenting_module_name", std::string("vllm.llm_engine")},
                {"vllm.process_id", std::to_string(getpid())}};
  auto given = ParsePairs(variable("OTEL_RESOURCE_ATTRIBUTES"));
  if (given.ok()) {
    for (auto& [key, value] : *given) SetAttribute(key, std::move(value), &attributes);
  } else {
    warnings->push_back("OTEL_RESOURCE_ATTRIBUTES is ignored: " + given.status().message());
  }
  const std::string service = variable("OTEL_SERVICE_NAME");
  if (!service.empty()) SetAttribute("service.name", service, &attributes);
  return resource;
}

void WarnOfOthers(const ReadVariable& variable, TraceOptions* options) {
  const Named compression = ReadExporterVariable(variable, "COMPRESSION");
  if (!compression.value.empty() && compression.value != "none") {
    options->warnings.push_back(compression.name + " has no effect: spans are sent uncompressed");
  }
  const std::string propagators = variable("OTEL_PROPAGATORS");
  if (!propagators.empty() && propagators.find("tracecontext") == propagators.npos) {
    options->warnings.push_back(
        "OTEL_PROPAGATORS has no effect: the caller's span is read from traceparent");
  }
  if (options->endpoint.port == "4317") {
    options->warnings.push_back("port 4317 of " + options->endpoint.text() +
                                " is gRPC's as a rule; http/protobuf has 4318");
  }
}

bool IsTurnedOff(const ReadVariable& variable, const std::string& flag) {
  if (ToLower(variable("OTEL_SDK_DISABLED")) == "true") return true;
  return flag.empty() && variable("OTEL_TRACES_EXPORTER") == "none";
}

// Headers are names and values of HTTP: neither may end the line.
Status CheckHeaders(const Named& given,
                    const std::vector<std::pair<std::string, std::string>>& headers) {
  for (const auto& [name, value] : headers) {
    const bool is_bad =
        std::ranges::any_of(name, [](char c) { return c <= 0x20 || c >= 0x7F || c == ':'; }) ||
        std::ranges::any_of(value, [](char c) { return (c >= 0 && c < 0x20) || c == 0x7F; });
    if (is_bad) return InvalidArgumentError(given.name + ": " + name + " cannot be a header");
  }
  return OkStatus();
}

}  // namespace

std::string EnvironmentVariable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

StatusOr<std::vector<std::pair<std::string, std::string>>> ParsePairs(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string_view part : Split(text, ',')) {
    const std::string_view pair = StripAscii(part);
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const std::string_view key = StripAscii(pair.substr(0, equals));
    // Values may be secrets, so messages do not have them.
    if (equals == pair.npos || key.empty()) {
      return InvalidArgumentError("must be key=value pairs with commas between them");
    }
    const std::string_view written = StripAscii(pair.substr(equals + 1));
    std::string value;
    for (size_t i = 0; i < written.size(); ++i) {
      if (written[i] != '%') {
        value += written[i];
        continue;
      }
      const auto byte = i + 2 < written.size() ? HexDecode(written.substr(i + 1, 2)) : std::nullopt;
      if (!byte) {
        return InvalidArgumentError("the value of " + std::string(key) +
                                    ": after % come two hex digits");
      }
      value += *byte;
      i += 2;
    }
    pairs.emplace_back(key, std::move(value));
  }
  return pairs;
}

StatusOr<TraceOptions> ReadTraceOptions(const std::string& endpoint, const ReadVariable& variable) {
  TraceOptions options;
  const bool is_asked_for = !endpoint.empty() ||
                            !variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").empty() ||
                            !variable("OTEL_EXPORTER_OTLP_ENDPOINT").empty();
  if (!is_asked_for) return options;
  if (IsTurnedOff(variable, endpoint)) {
    options.warnings.push_back(
        "no traces are exported: OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER says so");
    return options;
  }
  options.enabled = true;
  RETURN_IF_ERROR(CheckProtocol(ReadExporterVariable(variable, "PROTOCOL")));
  ASSIGN_OR_RETURN(options.endpoint, ReadEndpoint(endpoint, variable));
  const Named headers = ReadExporterVariable(variable, "HEADERS");
  auto pairs = ParsePairs(headers.value);
  if (!pairs.ok()) return pairs.status().WithContext(headers.name);
  options.headers = *std::move(pairs);
  RETURN_IF_ERROR(CheckHeaders(headers, options.headers));
  options.authorities = ReadExporterVariable(variable, "CERTIFICATE").value;
  RETURN_IF_ERROR(ReadMilliseconds(ReadExporterVariable(variable, "TIMEOUT"), &options.timeout_s));
  ASSIGN_OR_RETURN(options.sampler, ReadSampler(variable));
  options.resource = ReadResource(variable, &options.warnings);
  const auto batch = [&variable](const std::string& what) {
    const std::string name = "OTEL_BSP_" + what;
    return Named{name, variable(name.c_str())};
  };
  RETURN_IF_ERROR(ReadMilliseconds(batch("SCHEDULE_DELAY"), &options.delay_s));
  RETURN_IF_ERROR(ReadCount(batch("MAX_QUEUE_SIZE"), &options.max_queued_spans));
  RETURN_IF_ERROR(ReadCount(batch("MAX_EXPORT_BATCH_SIZE"), &options.max_batch_spans));
  options.max_batch_spans = std::min(options.max_batch_spans, options.max_queued_spans);
  WarnOfOthers(variable, &options);
  return options;
}

}  // namespace tandem
