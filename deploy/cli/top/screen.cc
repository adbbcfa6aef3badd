#include "deploy/cli/top/screen.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "common/utf8.h"

namespace tandem {
namespace {

using Style = ScreenLine::Style;
using Row = std::vector<std::string>;

constexpr std::string_view kNothing = "-";

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string PercentText(double part) {
  return Fixed(part * 100, part > 0 && part < 0.1 ? 1 : 0) + "%";
}

std::string SpanText(double s) {
  if (s < 60) return Fixed(s, 0) + " s";
  if (s < 5400) return Fixed(s / 60, 0) + " min";
  if (s < 172800) return Fixed(s / 3600, 1) + " h";
  return Fixed(s / 86400, 0) + " days";
}

template <class F>
std::string OrNothing(const std::optional<double>& value, F text) {
  return value ? text(*value) : std::string(kNothing);
}

std::string Pad(std::string text, size_t width) {
  const size_t size = CountUtf8(text);
  if (size < width) text.append(width - size, ' ');
  return text;
}

std::string Latencies(const History& history, std::string_view histogram) {
  std::string text;
  for (const auto& [name, q] :
       {std::pair("p50 ", 0.5), std::pair("p90 ", 0.9), std::pair("p99 ", 0.99)}) {
    text += Pad(name + OrNothing(history.Quantile(q, histogram), SecondsText), 16);
  }
  return text;
}

// Cells cut to `limit` characters, columns two blanks apart.
void AddTable(const Row& heading, const std::vector<Row>& rows, std::vector<ScreenLine>* lines) {
  constexpr size_t kMaxCell = 40;
  std::vector<Row> all = {heading};
  all.insert(all.end(), rows.begin(), rows.end());
  std::vector<size_t> widths(heading.size());
  for (Row& row : all) {
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = FitLine(row[i], kMaxCell);
      widths[i] = std::max(widths[i], CountUtf8(row[i]));
    }
  }
  for (size_t r = 0; r < all.size(); ++r) {
    std::string text;
    for (size_t i = 0; i < all[r].size(); ++i) text += Pad(all[r][i], widths[i] + 2);
    lines->push_back({text, r == 0 ? Style::kHeading : Style::kPlain});
  }
}

std::string Bar(double part) {
  constexpr size_t kCells = 20;
  const double cells = std::ceil(std::clamp(part, 0.0, 1.0) * kCells - 1e-9);
  std::string bar(static_cast<size_t>(std::max(0.0, cells)), '#');
  bar.resize(kCells, '.');
  return "[" + bar + "]";
}

Row EngineRow(const EngineState& engine) {
  const auto tokens =
      static_cast<double>(engine.kv_blocks) * static_cast<double>(engine.block_size);
  return {std::to_string(engine.index),
          engine.status,
          std::to_string(engine.running) + " of " + std::to_string(engine.max_num_seqs),
          std::to_string(engine.waiting),
          Bar(engine.kv_cache_usage) + " " + PercentText(engine.kv_cache_usage) + " of " +
              CountText(tokens),
          CountText(static_cast<double>(engine.max_model_len)),
          std::to_string(engine.restarts),
          engine.resident_bytes > 0
              ? CountText(static_cast<double>(engine.resident_bytes) / (1 << 20)) + " MiB"
              : std::string(kNothing)};
}

Row RequestRow(const RequestState& request) {
  const double decoding_s = request.ttft_s ? request.age_s - *request.ttft_s : 0;
  const auto steps = static_cast<double>(request.output_tokens - 1);
  return {
      request.id + (request.choices > 1 ? " x" + std::to_string(request.choices) : ""),
      request.phase,
      SecondsText(request.age_s),
      OrNothing(request.ttft_s, SecondsText),
      std::to_string(request.prompt_tokens),
      std::to_string(request.cached_tokens),
      std::to_string(request.output_tokens) + " of " + std::to_string(request.max_output_tokens),
      decoding_s > 0 && steps > 0 ? Fixed(steps / decoding_s, 1) : std::string(kNothing),
      std::to_string(request.preemptions)};
}

std::string Title(std::string_view url, const DashboardState& state) {
  const auto num_ready = std::ranges::count(state.engines, true, &EngineState::ready);
  return state.model + "  Tandem " + state.version + ", up " + SpanText(state.uptime_s) + ", " +
         std::to_string(num_ready) + " of " + std::to_string(state.engines.size()) +
         " engines ready" + (state.is_draining ? ", shutting down" : "") + "  " + std::string(url);
}

std::vector<ScreenLine> Numbers(const History& history) {
  const auto count = [](double value) { return CountText(value); };
  const std::string window =
      history.window_s() > 0 ? "last " + Fixed(history.window_s(), 0) + " s" : "since the start";
  return {
      {"Requests        " +
       Pad(count(history.Newest("vllm:num_requests_running")) + " running", 16) +
       Pad(count(history.Newest("vllm:num_requests_waiting")) + " waiting", 16) +
       Pad(count(history.Newest("vllm:num_preemptions_total")) + " preemptions", 16)},
      {"Tokens/s        " +
       Pad(OrNothing(history.Rate("vllm:generation_tokens_total"), count) + " generated", 16) +
       Pad(OrNothing(history.Rate("vllm:prompt_tokens_total"), count) + " of prompts", 16)},
      {"First token     " + Latencies(history, "vllm:time_to_first_token_seconds") + window},
      {"Between tokens  " + Latencies(history, "vllm:inter_token_latency_seconds") + window},
      {"Prefix cache    " +
       Pad(OrNothing(
               history.Share("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
               PercentText) +
               " hits",
           48) +
       window},
  };
}

}  // namespace

std::string SecondsText(double s) {
  if (!std::isfinite(s)) return std::string(kNothing);
  if (s < 1) return Fixed(s * 1e3, s < 0.01 ? 1 : 0) + " ms";
  if (s < 100) return Fixed(s, 1) + " s";
  return Fixed(s / 60, 0) + " min";
}

std::string CountText(double count) {
  if (count >= 1e6) return Fixed(count / 1e6, 1) + "M";
  if (count >= 1e4) return Fixed(count / 1e3, 1) + "k";
  return Fixed(count, 0);
}

std::string FitLine(std::string_view text, size_t width) {
  constexpr char32_t kFirstPrintable = 0x20, kDelete = 0x7F, kLastControl = 0x9F;
  std::string line;
  size_t pos = 0;
  for (size_t column = 0; column < width && pos < text.size(); ++column) {
    const Utf8Sequence next = ReadUtf8(text, pos);
    pos += next.size;
    const bool is_control = next.code_point < kFirstPrintable ||
                            (next.code_point >= kDelete && next.code_point <= kLastControl);
    AppendUtf8(is_control ? U'?' : next.code_point, &line);
  }
  return line;
}

std::vector<ScreenLine> DrawScreen(std::string_view url, const DashboardState* state,
                                   const History& history, std::string_view problem) {
  std::vector<ScreenLine> lines;
  lines.push_back(
      {state == nullptr ? "tandem top  " + std::string(url) : Title(url, *state), Style::kTitle});
  if (!problem.empty()) lines.push_back({std::string(problem), Style::kProblem});
  if (state == nullptr) return lines;
  for (ScreenLine& line : Numbers(history)) lines.push_back(std::move(line));
  lines.push_back({});
  std::vector<Row> engines, requests;
  for (const EngineState& engine : state->engines) engines.push_back(EngineRow(engine));
  AddTable({"ENGINE", "STATUS", "RUNNING", "WAITING", "KV CACHE", "CONTEXT", "RESTARTS", "MEMORY"},
           engines, &lines);
  lines.push_back({});
  for (const RequestState& request : state->requests) requests.push_back(RequestRow(request));
  AddTable({"REQUEST", "PHASE", "AGE", "FIRST TOKEN", "PROMPT", "CACHED", "OUTPUT", "TOKENS/S",
            "PREEMPTED"},
           requests, &lines);
  const auto num_listed = static_cast<int64_t>(state->requests.size());
  if (state->num_requests > num_listed) {
    lines.push_back({"and " + std::to_string(state->num_requests - num_listed) + " more"});
  }
  return lines;
}

}  // namespace tandem
