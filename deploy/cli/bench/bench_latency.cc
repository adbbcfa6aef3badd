#include "deploy/cli/bench/bench_latency.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/exit_status.h"
#include "common/log.h"
#include "deploy/cli/bench/offline_load.h"
#include "deploy/cli/bench/progress_bar.h"
#include "deploy/cli/bench/write_file.h"
#include "deploy/cli/report_failure.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kCommand = "bench latency";
constexpr int kPercentages[] = {10, 25, 50, 75, 90, 99};

struct LatencyOptions {
  OfflineLoad::Options engine;
  int64_t input_len = 32;
  int64_t output_len = 128;
  int64_t batch_size = 8;
  int64_t num_iters_warmup = 10;
  int64_t num_iters = 30;
  std::string output_json;
  bool disable_tqdm = false;
};

std::vector<Flag> LatencyFlags(LatencyOptions& o) {
  std::vector<Flag> flags = OfflineLoad::Flags(o.engine);
  const std::vector<Flag> own = {
      {"input-len", &o.input_len, "Tokens of a prompt", {.min = 1, .max = 1 << 24}},
      {"output-len", &o.output_len, "Output tokens of a request", {.min = 1, .max = 1 << 24}},
      {"batch-size", &o.batch_size, "Requests sent at once", {.min = 1, .max = 1 << 16}},
      {"num-iters-warmup", &o.num_iters_warmup, "Batches run before the measurement", {.min = 0}},
      {"num-iters", &o.num_iters, "Batches measured", {.min = 1}},
      {"output-json", &o.output_json, "Write the result to this file"},
      {"disable-tqdm", &o.disable_tqdm, "No progress bar"},
  };
  flags.insert(flags.end(), own.begin(), own.end());
  return flags;
}

std::vector<BenchPrompt> MakeBatch(const LatencyOptions& options, int64_t vocab_size) {
  std::vector<BenchPrompt> prompts;
  for (int64_t i = 0; i < options.batch_size; ++i) {
    BenchPrompt prompt;
    prompt.token_ids = RandomTokenIds(options.input_len, vocab_size,
                                      static_cast<uint64_t>(options.engine.seed + i));
    prompt.prompt_tokens = options.input_len;
    prompt.output_tokens = options.output_len;
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

StatusOr<std::vector<double>> Measure(const LatencyOptions& options) {
  ASSIGN_OR_RETURN(const auto load, OfflineLoad::Start(options.engine));
  const std::vector<BenchPrompt> batch = MakeBatch(options, load->vocab_size());
  const int64_t total = options.num_iters_warmup + options.num_iters;
  ProgressBar bar(static_cast<size_t>(total), !options.disable_tqdm && isatty(STDERR_FILENO) != 0);
  std::vector<double> latencies;
  for (int64_t i = 0; i < total; ++i) {
    const StatusOr<LoadRun> run = load->Run(batch);
    bar.Show(static_cast<size_t>(i + 1), 0);
    if (!run.ok()) return run.status();
    if (i >= options.num_iters_warmup) latencies.push_back(run->duration);
  }
  bar.Finish();
  return latencies;
}

std::vector<double> Sorted(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

double Mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

std::string LatencyReport(std::span<const double> latencies) {
  const std::vector<double> sorted = Sorted(latencies);
  std::string text = "Avg latency: " + Json(Mean(latencies)).dump() + " seconds\n";
  for (const int percent : kPercentages) {
    text += std::to_string(percent) +
            "% percentile latency: " + Json(Percentile(sorted, percent)).dump() + " seconds\n";
  }
  return text;
}

std::string LatencyJson(const std::string& model_id, std::span<const double> latencies) {
  const std::vector<double> sorted = Sorted(latencies);
  Json json;
  json["model_id"] = model_id;
  json["avg_latency"] = Mean(latencies);
  json["latencies"] = std::vector<double>(latencies.begin(), latencies.end());
  for (const int percent : kPercentages) {
    json["percentiles"][std::to_string(percent)] = Percentile(sorted, percent);
  }
  return json.dump(4) + "\n";
}

int RunBenchLatency(const std::vector<std::string>& args) {
  constexpr std::string_view kAbout =
      "tandem bench latency --model FOLDER [flags]: time of one batch, over a server started here.";
  LatencyOptions options;
  const StatusOr<FlagOutcome> parsed =
      OfflineLoad::Parse(args, LatencyFlags(options), kAbout, options.engine);
  if (!parsed.ok()) return ReportFailure(kCommand, parsed.status(), kExitBadFlags);
  if (*parsed == FlagOutcome::kHelpShown) return kExitOk;
  if (const Status status = InitLog("tandem", "WARNING"); !status.ok()) {
    return ReportFailure(kCommand, status, kExitBadFlags);
  }
  const StatusOr<std::vector<double>> latencies = Measure(options);
  if (!latencies.ok()) return ReportFailure(kCommand, latencies.status(), kExitFailed);
  std::cout << LatencyReport(*latencies) << std::flush;
  if (options.output_json.empty()) return kExitOk;
  const Status status =
      WriteFile(options.output_json, LatencyJson(options.engine.model, *latencies));
  return status.ok() ? kExitOk : ReportFailure(kCommand, status, kExitFailed);
}

}  // namespace tandem
