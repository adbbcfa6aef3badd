#include "deploy/cli/bench/bench_throughput.h"

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/exit_status.h"
#include "common/log.h"
#include "deploy/cli/bench/offline_load.h"
#include "deploy/cli/bench/write_file.h"
#include "deploy/cli/report_failure.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kCommand = "bench throughput";

struct ThroughputOptions {
  OfflineLoad::Options engine;
  BenchServeOptions dataset;  // only the members that MakePrompts reads
  std::string backend = "vllm";
  std::string dataset_name = "sharegpt";
  std::optional<int64_t> prefix_len;
  int64_t num_warmups = 0;
  std::string output_json;
};

std::vector<Flag> ThroughputFlags(ThroughputOptions& o) {
  std::vector<Flag> flags = OfflineLoad::Flags(o.engine);
  const std::vector<Flag> own = {
      {"backend",
       &o.backend,
       "Completions, or chat completions",
       {.choices = {"vllm", "vllm-chat"}}},
      {"dataset-name",
       &o.dataset_name,
       "Where prompts come from; sharegpt without a file: random",
       {.choices = {"random", "sharegpt", "sonnet", "prefix_repetition", "custom"}}},
      {"prefix-len",
       &o.prefix_len,
       "random and sonnet: tokens that all prompts have in common at the start",
       {.min = 0}},
      {"num-warmups", &o.num_warmups, "Requests sent before the measurement", {.min = 0}},
      {"output-json", &o.output_json, "Write the result to this file"},
  };
  flags.insert(flags.end(), own.begin(), own.end());
  // The other dataset flags have their rows in BenchServeFlags.
  for (const Flag& flag : BenchServeFlags(o.dataset)) {
    const bool makes_prompts =
        flag.name == "dataset-path" || flag.name == "num-prompts" || flag.name == "input-len" ||
        flag.name == "output-len" || flag.name == "disable-shuffle" ||
        flag.name == "no-oversample" || flag.name == "random-input-len" ||
        flag.name == "random-output-len" || flag.name == "random-range-ratio" ||
        flag.name == "random-prefix-len" || flag.name.starts_with("prefix-repetition-") ||
        flag.name.starts_with("sonnet-") || flag.name.starts_with("sharegpt-") ||
        flag.name.starts_with("custom-");
    if (makes_prompts) flags.push_back(flag);
  }
  return flags;
}

// Translates this command's flags into those of the dataset.
Status ResolveDataset(ThroughputOptions* o) {
  BenchServeOptions& dataset = o->dataset;
  dataset.dataset_name = o->dataset_name;
  if (dataset.dataset_name == "sharegpt" && dataset.dataset_path.empty()) {
    dataset.dataset_name = "random";
  }
  dataset.seed = o->engine.seed;
  dataset.model = o->engine.model;
  if (o->prefix_len) dataset.random_prefix_len = dataset.sonnet_prefix_len = *o->prefix_len;
  o->engine.chat = o->backend == "vllm-chat";
  return CheckBenchServeOptions(dataset);
}

StatusOr<ThroughputResult> Measure(const ThroughputOptions& options) {
  ASSIGN_OR_RETURN(const auto load, OfflineLoad::Start(options.engine));
  ASSIGN_OR_RETURN(const std::vector<BenchPrompt> prompts,
                   MakePrompts(options.dataset, load->tokenizer(), !options.engine.chat));
  if (options.num_warmups > 0) {
    const std::vector<BenchPrompt> warmups(static_cast<size_t>(options.num_warmups), prompts[0]);
    RETURN_IF_ERROR(load->Run(warmups).status());
  }
  ASSIGN_OR_RETURN(const LoadRun run, load->Run(prompts));
  ThroughputResult result;
  result.model_id = load->model_id();
  result.elapsed_s = run.duration;
  for (const RequestOutcome& outcome : run.outcomes) {
    ++result.num_requests;
    result.num_prompt_tokens += outcome.prompt_tokens;
    result.num_output_tokens += outcome.output_tokens;
  }
  return result;
}

double PerSecond(const ThroughputResult& result, int64_t count) {
  return static_cast<double>(count) / result.elapsed_s;
}

}  // namespace

std::string ThroughputReport(const ThroughputResult& result) {
  char text[256];
  std::snprintf(text, sizeof text,
                "Throughput: %.2f requests/s, %.2f total tokens/s, %.2f output tokens/s\n"
                "Total num prompt tokens:  %lld\nTotal num output tokens:  %lld\n",
                PerSecond(result, result.num_requests),
                PerSecond(result, result.num_prompt_tokens + result.num_output_tokens),
                PerSecond(result, result.num_output_tokens),
                static_cast<long long>(result.num_prompt_tokens),
                static_cast<long long>(result.num_output_tokens));
  return text;
}

std::string ThroughputJson(const ThroughputResult& result) {
  const int64_t num_tokens = result.num_prompt_tokens + result.num_output_tokens;
  Json json;
  json["model_id"] = result.model_id;
  json["elapsed_time"] = result.elapsed_s;
  json["num_requests"] = result.num_requests;
  json["total_num_tokens"] = num_tokens;
  json["requests_per_second"] = PerSecond(result, result.num_requests);
  json["tokens_per_second"] = PerSecond(result, num_tokens);
  return json.dump(4) + "\n";
}

int RunBenchThroughput(const std::vector<std::string>& args) {
  constexpr std::string_view kAbout =
      "tandem bench throughput --model FOLDER [flags]: all requests at once, over a server started "
      "here.";
  ThroughputOptions options;
  const StatusOr<FlagOutcome> parsed =
      OfflineLoad::Parse(args, ThroughputFlags(options), kAbout, options.engine);
  if (!parsed.ok()) return ReportFailure(kCommand, parsed.status(), kExitBadFlags);
  if (*parsed == FlagOutcome::kHelpShown) return kExitOk;
  if (const Status status = ResolveDataset(&options); !status.ok()) {
    return ReportFailure(kCommand, status, kExitBadFlags);
  }
  if (const Status status = InitLog("tandem", "WARNING"); !status.ok()) {
    return ReportFailure(kCommand, status, kExitBadFlags);
  }
  const StatusOr<ThroughputResult> result = Measure(options);
  if (!result.ok()) return ReportFailure(kCommand, result.status(), kExitFailed);
  std::cout << ThroughputReport(*result) << std::flush;
  if (options.output_json.empty()) return kExitOk;
  const Status status = WriteFile(options.output_json, ThroughputJson(*result));
  return status.ok() ? kExitOk : ReportFailure(kCommand, status, kExitFailed);
}

}  // namespace tandem
