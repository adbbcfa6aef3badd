#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>

#include "deploy/cli/bench/bench_api.h"
#include "deploy/cli/bench/bench_serve.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kReportWidth = 50;

struct MetricRow {
  std::string_view name;  // in flags and JSON
  std::string_view title;
  std::string_view heading;
  Distribution ServeMetrics::*values;
};
constexpr MetricRow kMetricRows[] = {
    {"ttft", "TTFT", "Time to First Token", &ServeMetrics::ttft},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)", &ServeMetrics::tpot},
    {"itl", "ITL", "Inter-token Latency", &ServeMetrics::itl},
    {"e2el", "E2EL", "End-to-end Latency", &ServeMetrics::e2el},
    {"client_queue_time", "Client Queue Time", "Client-side Queueing",
     &ServeMetrics::client_queue_time},
    {"e2el_including_client_queue", "E2EL incl. Client Queue", "Queue-inclusive End-to-end Latency",
     &ServeMetrics::e2el_including_client_queue},
};

// The requested rows that make sense for this run: queueing needs a concurrency limit, and its sum
// with the latency needs a request rate.
std::vector<const MetricRow*> SelectedRows(const BenchServeOptions& options) {
  const std::vector<std::string> names = MetricNames(options);
  std::vector<const MetricRow*> rows;
  for (const MetricRow& row : kMetricRows) {
    if (std::find(names.begin(), names.end(), row.name) == names.end()) continue;
    const bool queues = row.name == "client_queue_time";
    const bool both = row.name == "e2el_including_client_queue";
    if ((queues || both) && !options.max_concurrency) continue;
    if (both && std::isinf(options.request_rate)) continue;
    rows.push_back(&row);
  }
  return rows;
}

std::string Centered(std::string_view text, char fill) {
  const size_t room = kReportWidth - std::min<size_t>(text.size(), kReportWidth);
  return std::string(room / 2, fill) + std::string(text) + std::string(room - room / 2, fill) +
         "\n";
}

std::string Line(const std::string& label, const std::string& value) {
  char text[256];
  std::snprintf(text, sizeof text, "%-40s %-10s\n", label.c_str(), value.c_str());
  return text;
}

std::string Line(const std::string& label, int64_t value) {
  return Line(label, std::to_string(value));
}

std::string Line(const std::string& label, double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f", value);
  return Line(label, std::string(text));
}

// 99 -> "99", 99.9 -> "99.9"
std::string PercentWord(double percent) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", percent);
  return text;
}

std::string LocalTime(double unix_time, const char* format) {
  const auto seconds = static_cast<time_t>(unix_time);
  tm parts{};
  localtime_r(&seconds, &parts);
  char text[64];
  std::strftime(text, sizeof text, format, &parts);
  return text;
}

std::string IsoTime(double unix_time) {
  char micros[16];
  std::snprintf(micros, sizeof micros, ".%06d",
                static_cast<int>((unix_time - std::floor(unix_time)) * 1e6));
  return LocalTime(unix_time, "%Y-%m-%dT%H:%M:%S") + micros;
}

// As Python prints a float: 4 -> "4.0".
std::string RateWord(double rate) {
  if (std::isinf(rate)) return "inf";
  return Json(rate).dump();
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

void AddRequestArrays(const std::vector<RequestOutcome>& outcomes, bool detailed, Json* json) {
  const auto add = [&](const char* name, auto member) {
    Json values = Json::array();
    for (const RequestOutcome& outcome : outcomes) values.push_back(outcome.*member);
    (*json)[name] = std::move(values);
  };
  if (detailed) {
    add("input_lens", &RequestOutcome::prompt_tokens);
    add("output_lens", &RequestOutcome::output_tokens);
    add("ttfts", &RequestOutcome::ttft);
    add("itls", &RequestOutcome::itl);
    add("start_times", &RequestOutcome::start);
    add("generated_texts", &RequestOutcome::text);
    add("errors", &RequestOutcome::error);
  }
  add("latencies", &RequestOutcome::latency);
  add("queue_times", &RequestOutcome::queue_time);
}

}  // namespace

std::string BenchServeReport(const BenchServeOptions& options, const BenchServeResult& result) {
  const ServeMetrics& m = result.metrics;
  std::string text = Centered(" Serving Benchmark Result ", '=');
  text += Line("Successful requests:", m.completed);
  text += Line("Failed requests:", m.failed);
  if (options.max_concurrency)
    text += Line("Maximum request concurrency:", *options.max_concurrency);
  if (!std::isinf(options.request_rate)) {
    text += Line("Request rate configured (RPS):", options.request_rate);
  }
  text += Line("Benchmark duration (s):", m.duration);
  text += Line("Total input tokens:", m.total_input_tokens);
  const bool is_pooled = IsPooled(options.backend);
  if (!is_pooled) text += Line("Total generated tokens:", m.total_output_tokens);
  text += Line("Request throughput (req/s):", m.request_throughput);
  if (is_pooled) text += Line("Input throughput (inputs/s):", m.input_throughput);
  if (m.request_goodput) text += Line("Request goodput (req/s):", *m.request_goodput);
  if (!is_pooled) {
    text += Line("Output token throughput (tok/s):", m.output_throughput);
    text += Line("Peak output token throughput (tok/s):", m.max_output_tokens_per_s);
  }
  text += Line("Peak concurrent requests:", static_cast<double>(m.max_concurrent_requests));
  text += Line("Total token throughput (tok/s):", m.total_token_throughput);
  for (const MetricRow* row : SelectedRows(options)) {
    const Distribution& values = m.*row->values;
    const std::string title(row->title);
    text += Centered(row->heading, '-');
    text += Line("Mean " + title + " (ms):", values.mean_ms);
    text += Line("Median " + title + " (ms):", values.median_ms);
    for (const auto& [percent, value] : values.percentiles) {
      text += Line("P" + PercentWord(percent) + " " + title + " (ms):", value);
    }
  }
  return text + std::string(kReportWidth, '=') + "\n";
}

std::string BenchServeJson(const BenchServeOptions& options, const BenchServeResult& result) {
  const ServeMetrics& m = result.metrics;
  Json json;
  json["date"] = LocalTime(result.started_at, "%Y%m%d-%H%M%S");
  json["endpoint_type"] = options.backend;
  json["backend"] = options.backend;
  json["label"] = TextOrNull(options.label);
  json["model_id"] = result.model_id;
  json["tokenizer_id"] = TextOrNull(result.tokenizer_id);
  json["num_prompts"] = options.num_prompts;
  for (const std::string& item : options.metadata) {
    const size_t equals = item.find('=');
    json[item.substr(0, equals)] = item.substr(equals + 1);
  }
  json["request_rate"] =
      std::isinf(options.request_rate) ? Json("inf") : Json(options.request_rate);
  json["burstiness"] = std::isinf(options.burstiness) ? Json("inf") : Json(options.burstiness);
  json["max_concurrency"] = options.max_concurrency ? Json(*options.max_concurrency) : Json();
  if (!options.ramp_up_strategy.empty()) {
    json["ramp_up_strategy"] = options.ramp_up_strategy;
    json["ramp_up_start_rps"] = *options.ramp_up_start_rps;
    json["ramp_up_end_rps"] = *options.ramp_up_end_rps;
  }

  json["duration"] = m.duration;
  json["completed"] = m.completed;
  json["failed"] = m.failed;
  json["total_input_tokens"] = m.total_input_tokens;
  const bool is_pooled = IsPooled(options.backend);
  if (is_pooled) {
    json["total_input_sequences"] = m.total_inputs;
  } else {
    json["total_output_tokens"] = m.total_output_tokens;
  }
  json["request_throughput"] = m.request_throughput;
  if (is_pooled) json["input_sequence_throughput"] = m.input_throughput;
  json["request_goodput"] = m.request_goodput ? Json(*m.request_goodput) : Json();
  if (!is_pooled) json["output_throughput"] = m.output_throughput;
  json["total_token_throughput"] = m.total_token_throughput;
  AddRequestArrays(result.outcomes, options.save_detailed, &json);
  if (!is_pooled) json["max_output_tokens_per_s"] = m.max_output_tokens_per_s;
  json["max_concurrent_requests"] = m.max_concurrent_requests;
  if (!is_pooled) json["rtfx"] = 0.0;
  if (!result.rate_changes.empty()) {
    json["rps_change_events"] = Json::array();
    for (const BenchServeResult::RateChange& change : result.rate_changes) {
      json["rps_change_events"].push_back(
          {{"rps", change.rps}, {"timestamp", IsoTime(change.unix_time)}});
    }
  }
  for (const MetricRow* row : SelectedRows(options)) {
    const Distribution& values = m.*row->values;
    const std::string name(row->name);
    json["mean_" + name + "_ms"] = values.mean_ms;
    json["median_" + name + "_ms"] = values.median_ms;
    json["std_" + name + "_ms"] = values.std_ms;
    for (const auto& [percent, value] : values.percentiles) {
      json["p" + PercentWord(percent) + "_" + name + "_ms"] = value;
    }
  }
  json["client_cpu_seconds"] = result.client_cpu_s;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string BenchServeFileName(const BenchServeOptions& options, const BenchServeResult& result) {
  if (!options.result_filename.empty()) return options.result_filename;
  std::string name = options.label.empty() ? options.backend : options.label;
  if (options.ramp_up_strategy.empty()) {
    name += "-" + RateWord(options.request_rate) + "qps";
  } else {
    name += "-ramp-up-" + options.ramp_up_strategy + "-" + RateWord(*options.ramp_up_start_rps) +
            "qps-" + RateWord(*options.ramp_up_end_rps) + "qps";
  }
  if (options.max_concurrency) name += "-concurrency" + std::to_string(*options.max_concurrency);
  std::string model = result.model_id;
  while (model.size() > 1 && model.back() == '/') model.pop_back();
  return name + "-" + model.substr(model.rfind('/') + 1) + "-" +
         LocalTime(result.started_at, "%Y%m%d-%H%M%S") + ".json";
}

}  // namespace tandem
