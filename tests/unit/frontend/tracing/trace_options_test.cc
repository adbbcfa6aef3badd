#include "frontend/tracing/trace_options.h"

#include <map>
#include <string>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Variables = std::map<std::string, std::string>;

StatusOr<TraceOptions> Read(const std::string& flag, const Variables& variables = {}) {
  return ReadTraceOptions(flag, [&variables](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? "" : it->second;
  });
}

std::string TextOf(const TraceOptions& options, const std::string& key) {
  for (const auto& [name, value] : options.resource.attributes) {
    if (name == key) return std::get<std::string>(value);
  }
  return "";
}

TEST_CASE("trace options: off without an endpoint") {
  CHECK_FALSE(Read("", {{"OTEL_SERVICE_NAME", "x"}, {"OTEL_TRACES_SAMPLER", "nonsense"}})->enabled);
}

TEST_CASE("trace options: the flag wins over the variables, that of traces over that of all") {
  const std::string traces = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
  const std::string all = "OTEL_EXPORTER_OTLP_ENDPOINT";
  CHECK(Read("http://a:4318/x", {{traces, "http://b"}})->endpoint.text() == "http://a:4318/x");
  CHECK(Read("http://a:4318")->endpoint.text() == "http://a:4318/v1/traces");
  CHECK(Read("", {{traces, "https://b"}, {all, "http://c"}})->endpoint.text() == "https://b/");
  CHECK(Read("", {{all, "http://c:1/"}})->endpoint.text() == "http://c:1/v1/traces");
  CHECK(Read("", {{all, "http://[::1]:1/p/"}})->endpoint.text() == "http://[::1]:1/p/v1/traces");
}

TEST_CASE("trace options: gRPC is refused by a message that names http/protobuf") {
  for (const char* name : {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"}) {
    const Status status = Read("http://a", {{name, "grpc"}}).status();
    CHECK(status.message().find(name + std::string(" is 'grpc', must be http/protobuf")) == 0);
  }
  CHECK(Read("grpc://a:4317").status().message().find("http/protobuf") != std::string::npos);
  CHECK(Read("http://a", {{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}}).ok());
  CHECK_FALSE(Read("http://a", {{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"}}).ok());
  CHECK(Read("http://a:4317")->warnings.size() == 1);
}

TEST_CASE("trace options: addresses that cannot be used are refused") {
  for (const char* bad : {"localhost:4318", "ftp://a", "http://", "http://:1", "http://a:0",
                          "http://a:65536", "http://a:x", "http://u:p@a", "http://[::1",
                          "http://[::1]x", "http://a b", "http://\xC3\xA4"}) {
    INFO(bad);
    const Status status = Read(bad).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(status.message().find("--otlp-traces-endpoint") == 0);
  }
}

TEST_CASE("trace options: variables of the exporter and the batches") {
  const auto options = Read(
      "http://a", {{"OTEL_EXPORTER_OTLP_HEADERS", "a=1"},
                   {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20x%3D , b = 2,"},
                   {"OTEL_EXPORTER_OTLP_TIMEOUT", "250"},
                   {"OTEL_BSP_SCHEDULE_DELAY", "100"},
                   {"OTEL_BSP_MAX_QUEUE_SIZE", "7"},
                   {"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"},
                   {"OTEL_PROPAGATORS", "b3"}});
  REQUIRE(options.ok());
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  CHECK(options->headers == Pairs{{"authorization", "Bearer x="}, {"b", "2"}});
  CHECK(options->timeout_s == 0.25);
  CHECK(options->delay_s == 0.1);
  CHECK(options->max_queued_spans == 7);
  CHECK(options->max_batch_spans == 7);
  CHECK(options->warnings.size() == 2);
  for (const auto& [name, value] : Variables{{"OTEL_EXPORTER_OTLP_TIMEOUT", "0"},
                                             {"OTEL_EXPORTER_OTLP_TIMEOUT", "10s"},
                                             {"OTEL_EXPORTER_OTLP_HEADERS", "secret"},
                                             {"OTEL_EXPORTER_OTLP_HEADERS", "a=%0d%0ax: y"},
                                             {"OTEL_EXPORTER_OTLP_HEADERS", "a=%4"},
                                             {"OTEL_BSP_MAX_QUEUE_SIZE", "-1"},
                                             {"OTEL_TRACES_SAMPLER", "sometimes"}}) {
    INFO(name << "=" << value);
    const Status status = Read("http://a", {{name, value}}).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(status.message().find(name) == 0);
    CHECK(status.message().find("secret") == std::string::npos);
  }
}

TEST_CASE("trace options: the resource is the variables' and ours") {
  const auto options =
      Read("http://a",
           {{"OTEL_RESOURCE_ATTRIBUTES", "service.name=from%20list,deployment.environment=prod"},
            {"OTEL_SERVICE_NAME", "svc"}});
  CHECK(TextOf(*options, "service.name") == "svc");
  CHECK(TextOf(*options, "deployment.environment") == "prod");
  CHECK(TextOf(*options, "vllm.process_id") != "");
  CHECK(options->resource.scope_name == "vllm.llm_engine");
  CHECK(TextOf(*Read("http://a"), "service.name") == "tandem");
  CHECK(Read("http://a", {{"OTEL_RESOURCE_ATTRIBUTES", "broken"}})->warnings.size() == 1);
}

TEST_CASE("trace options: OpenTelemetry's own switches turn traces off") {
  CHECK_FALSE(Read("http://a", {{"OTEL_SDK_DISABLED", "true"}})->enabled);
  const Variables none = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"},
                          {"OTEL_TRACES_EXPORTER", "none"}};
  CHECK_FALSE(Read("", none)->enabled);
  CHECK(Read("http://b", none)->enabled);
}

}  // namespace
}  // namespace tandem
