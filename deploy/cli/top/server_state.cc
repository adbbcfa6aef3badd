#include "deploy/cli/top/server_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/strings.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

const Json* Member(const Json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found == object.end() ? nullptr : &*found;
}

void Read(const Json& object, const char* name, std::string* out) {
  const Json* value = Member(object, name);
  if (value != nullptr && value->is_string()) *out = value->get<std::string>();
}
void Read(const Json& object, const char* name, bool* out) {
  const Json* value = Member(object, name);
  if (value != nullptr && value->is_boolean()) *out = value->get<bool>();
}
void Read(const Json& object, const char* name, double* out) {
  const Json* value = Member(object, name);
  if (value != nullptr && value->is_number()) *out = value->get<double>();
}
void Read(const Json& object, const char* name, int64_t* out) {
  constexpr double kMost = 9e15;
  auto value = static_cast<double>(*out);
  Read(object, name, &value);
  *out = static_cast<int64_t>(std::clamp(value, -kMost, kMost));
}

EngineState ParseEngine(const Json& json) {
  EngineState engine;
  Read(json, "index", &engine.index);
  Read(json, "ready", &engine.ready);
  Read(json, "status", &engine.status);
  Read(json, "running", &engine.running);
  Read(json, "waiting", &engine.waiting);
  Read(json, "kv_cache_usage", &engine.kv_cache_usage);
  Read(json, "kv_blocks", &engine.kv_blocks);
  Read(json, "block_size", &engine.block_size);
  Read(json, "max_model_len", &engine.max_model_len);
  Read(json, "max_num_seqs", &engine.max_num_seqs);
  Read(json, "restarts", &engine.restarts);
  Read(json, "resident_bytes", &engine.resident_bytes);
  return engine;
}

RequestState ParseRequest(const Json& json) {
  RequestState request;
  Read(json, "id", &request.id);
  Read(json, "phase", &request.phase);
  Read(json, "choices", &request.choices);
  Read(json, "prompt_tokens", &request.prompt_tokens);
  Read(json, "cached_tokens", &request.cached_tokens);
  Read(json, "output_tokens", &request.output_tokens);
  Read(json, "max_output_tokens", &request.max_output_tokens);
  Read(json, "preemptions", &request.preemptions);
  Read(json, "age_s", &request.age_s);
  double ttft_s = -1;
  Read(json, "ttft_s", &ttft_s);
  if (ttft_s >= 0) request.ttft_s = ttft_s;
  return request;
}

// A number as Prometheus writes it.
std::optional<double> MetricValue(std::string_view text) {
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  return ParseNumber<double>(text);
}

// The value of a label: of `le` in {a="b",le="0.5"}. nullopt: there is none.
std::optional<std::string_view> UpperBound(std::string_view labels) {
  constexpr std::string_view kLabel = "le=\"";
  for (size_t at = labels.find(kLabel); at != labels.npos; at = labels.find(kLabel, at + 1)) {
    if (at > 0 && labels[at - 1] != ',' && labels[at - 1] != '{') continue;
    const size_t begin = at + kLabel.size();
    const size_t end = labels.find('"', begin);
    if (end != labels.npos) return labels.substr(begin, end - begin);
  }
  return std::nullopt;
}

void AddSeries(std::string_view line, MetricsSample* sample) {
  if (line.empty() || line[0] == '#') return;
  // A label's value may contain blanks and braces; the series' value does not.
  const size_t open = line.find_first_of("{ ");
  if (open == line.npos) return;
  const size_t close = line[open] == '{' ? line.rfind('}') : open;
  if (close == line.npos) return;
  const std::string_view rest = StripAscii(line.substr(close + (line[open] == '{' ? 1 : 0)));
  const std::optional<double> value = MetricValue(rest.substr(0, rest.find(' ')));
  if (!value || !std::isfinite(*value)) return;
  std::string name(line.substr(0, open));
  constexpr std::string_view kBucket = "_bucket";
  if (name.ends_with(kBucket) && line[open] == '{') {
    const auto le = UpperBound(line.substr(open, close - open));
    const std::optional<double> bound = le ? MetricValue(*le) : std::nullopt;
    if (!bound) return;
    name.resize(name.size() - kBucket.size());
    sample->buckets[name][*bound] += *value;
    return;
  }
  sample->sums[name] += *value;
}

}  // namespace

StatusOr<DashboardState> ParseDashboardState(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Json* engines = Member(json, "engines");
  const Json* requests = Member(json, "requests");
  if (engines == nullptr || !engines->is_array() || requests == nullptr || !requests->is_array()) {
    return UnavailableError("/dashboard/state is not the state of a Tandem server");
  }
  DashboardState state;
  Read(json, "version", &state.version);
  Read(json, "model", &state.model);
  Read(json, "uptime_s", &state.uptime_s);
  Read(json, "is_draining", &state.is_draining);
  Read(json, "num_requests", &state.num_requests);
  for (const Json& engine : *engines) state.engines.push_back(ParseEngine(engine));
  for (const Json& request : *requests) state.requests.push_back(ParseRequest(request));
  return state;
}

double MetricsSample::Sum(std::string_view name) const {
  const auto found = sums.find(name);
  return found == sums.end() ? 0 : found->second;
}

MetricsSample ParseMetrics(std::string_view text, double time) {
  MetricsSample sample;
  sample.time = time;
  for (const std::string_view line : Split(text, '\n')) AddSeries(line, &sample);
  return sample;
}

}  // namespace tandem
