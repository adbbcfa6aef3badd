#include "deploy/cli/bench/bench_serve.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/clock.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/strings.h"
#include "deploy/cli/bench/arrivals.h"
#include "deploy/cli/bench/bench_api.h"
#include "deploy/cli/bench/load_client.h"
#include "deploy/cli/bench/load_plot.h"
#include "deploy/cli/bench/progress_bar.h"
#include "deploy/cli/bench/prompts.h"
#include "deploy/cli/bench/request_body.h"
#include "deploy/cli/command_line.h"
#include "deploy/cli/report_failure.h"
#include "frontend/text/tokenizer_folder.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kCommand = "bench serve";
constexpr int kHttpOk = 200;
constexpr double kPageTimeoutSeconds = 10;
constexpr std::chrono::milliseconds kReadyPause(250);
constexpr size_t kMaxShownErrors = 10;

double Now() { return SystemClock().Monotonic(); }

StatusOr<std::unique_ptr<LoadClient>> StartClient(const BenchServeOptions& options) {
  LoadTarget target;
  const std::string url =
      options.base_url.empty() ? UrlOfHostAndPort(options.host, options.port) : options.base_url;
  ASSIGN_OR_RETURN(target.url, ParseServerUrl(url));
  target.insecure = options.insecure;
  bool has_authorization = false;
  for (const std::string& item : options.headers) {
    const size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    has_authorization |= ToLower(name) == "authorization";
    target.header_lines.push_back(name + ": " + item.substr(equals + 1));
  }
  if (const char* key = std::getenv("OPENAI_API_KEY"); key != nullptr && !has_authorization) {
    target.header_lines.push_back("Authorization: Bearer " + std::string(key));
  }
  return LoadClient::Start(std::move(target));
}

// Calls `attempt` until it succeeds or the time is over; at least once.
template <class F>
Status UntilReady(double timeout_s, F attempt) {
  const double deadline = Now() + timeout_s;
  while (true) {
    Status status = attempt();
    if (status.ok() || Now() >= deadline) return status;
    std::this_thread::sleep_for(kReadyPause);
  }
}

struct ServedModel {
  std::string id;
  std::string root;  // the folder it was loaded from, if the server reports it
};

StatusOr<ServedModel> FirstModel(LoadClient& client, double ready_timeout_s) {
  ServedModel model;
  const Status status = UntilReady(ready_timeout_s, [&]() -> Status {
    ASSIGN_OR_RETURN(const LoadReply reply, client.Get("/v1/models", kPageTimeoutSeconds));
    const Json list = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
    const Json::json_pointer id("/data/0/id"), root("/data/0/root");
    if (reply.status_code != kHttpOk || !list.is_object() || !list.contains(id) ||
        !list[id].is_string()) {
      return UnavailableError("/v1/models returned " + std::to_string(reply.status_code) +
                              " and names no model; give --model");
    }
    model.id = list[id].get<std::string>();
    if (list.contains(root) && list[root].is_string()) model.root = list[root].get<std::string>();
    return OkStatus();
  });
  RETURN_IF_ERROR(status);
  return model;
}

// The folder to read the tokenizer from.
StatusOr<std::string> FindTokenizer(const BenchServeOptions& options, const ServedModel& model) {
  if (!options.tokenizer.empty()) return options.tokenizer;
  for (const std::string& folder : {model.id, model.root}) {
    if (!folder.empty() && HasTokenizerFile(folder)) return folder;
  }
  return InvalidArgumentError(
      "no tokenizer for '" + model.id +
      "': it is not a folder here with a tokenizer's file; give --tokenizer "
      "FOLDER, or --skip-tokenizer-init");
}

std::string EndpointOf(const BenchServeOptions& options) {
  if (!options.endpoint.empty()) return options.endpoint;
  return std::string(BackendOf(options.backend).path);
}

bool TakesTokenIds(const BenchServeOptions& options) {
  const BenchApi api = BackendOf(options.backend).api;
  return api == BenchApi::kCompletions ||
         (IsPooled(api) && api != BenchApi::kRerank && options.random_batch_size == 1);
}

ArrivalRules RulesOf(const BenchServeOptions& options) {
  ArrivalRules rules;
  rules.request_rate = options.request_rate;
  rules.burstiness = options.burstiness;
  if (options.ramp_up_strategy.empty()) return rules;
  rules.ramp_up = options.ramp_up_strategy == "linear" ? RampUp::kLinear : RampUp::kExponential;
  rules.ramp_up_start_rps = *options.ramp_up_start_rps;
  rules.ramp_up_end_rps = *options.ramp_up_end_rps;
  return rules;
}

// When a ramp's rate reached each whole number.
std::vector<BenchServeResult::RateChange> RateChanges(const BenchServeOptions& options,
                                                      const Arrivals& arrivals, double unix_begin) {
  std::vector<BenchServeResult::RateChange> changes;
  if (options.ramp_up_strategy.empty()) return changes;
  auto rps = static_cast<int64_t>(*options.ramp_up_start_rps);
  changes.push_back({rps, unix_begin});
  for (size_t i = 0; i < arrivals.rates.size(); ++i) {
    while (rps < static_cast<int64_t>(arrivals.rates[i])) {
      changes.push_back({++rps, unix_begin + arrivals.due[i]});
    }
  }
  return changes;
}

LoadPlan EmptyPlan(const BenchServeOptions& options) {
  LoadPlan plan;
  plan.max_concurrency = options.max_concurrency;
  plan.request_timeout_s = options.request_timeout_s;
  return plan;
}

LoadRun RunRepeated(const BenchServeOptions& options, const LoadRequest& request, int64_t count,
                    LoadClient* client) {
  LoadPlan plan = EmptyPlan(options);
  plan.requests.assign(static_cast<size_t>(count), request);
  return client->Run(std::move(plan));
}

// Waits for the server to respond to the request, which then warms it up.
Status Rehearse(const BenchServeOptions& options, const LoadRequest& request, LoadClient* client) {
  if (options.ready_check_timeout_s > 0) {
    const Status ready = UntilReady(options.ready_check_timeout_s, [&]() -> Status {
      const LoadRun run = RunRepeated(options, request, 1, client);
      return run.outcomes[0].success ? OkStatus() : UnavailableError(run.outcomes[0].error);
    });
    if (!ready.ok()) return ready.WithContext("the server is not ready");
  }
  if (options.num_warmups > 0) RunRepeated(options, request, options.num_warmups, client);
  return OkStatus();
}

// For servers that send no usage.
void CountMissingTokens(const Tokenizer* tokenizer, std::vector<RequestOutcome>* outcomes) {
  for (RequestOutcome& outcome : *outcomes) {
    if (!outcome.success || outcome.output_tokens > 0) continue;
    const auto num_chunks = static_cast<int64_t>(outcome.itl.size()) + 1;
    outcome.output_tokens = num_chunks;
    if (tokenizer == nullptr) continue;
    const auto ids = tokenizer->Encode(outcome.text, false);
    if (ids.ok()) outcome.output_tokens = static_cast<int64_t>(ids->size());
  }
}

// Removes vLLM's flags that mean nothing here; unknown ones stay and become errors.
std::vector<std::string> WithoutMeaningless(const std::vector<std::string>& args,
                                            const std::vector<Flag>& flags) {
  StatusOr<PairCommandLine> split = SplitCommandLine(args, flags, {});
  if (!split.ok()) return args;
  for (const std::string& warning : split->warnings) {
    std::cerr << "tandem bench serve: " << warning << "\n";
  }
  return std::move(split->frontend);
}

std::filesystem::path ResultPath(const BenchServeOptions& options, const BenchServeResult& result) {
  return std::filesystem::path(options.result_dir) / BenchServeFileName(options, result);
}

Status SaveResult(const BenchServeOptions& options, const BenchServeResult& result) {
  const std::filesystem::path path = ResultPath(options, result);
  std::error_code error;
  if (!options.result_dir.empty()) std::filesystem::create_directories(options.result_dir, error);
  const bool follows = options.append_result && std::filesystem::exists(path, error) &&
                       std::filesystem::file_size(path, error) > 0;
  std::ofstream file(path, options.append_result ? std::ios::app : std::ios::trunc);
  if (follows) file << '\n';
  file << BenchServeJson(options, result);
  file.flush();
  if (!file) return UnavailableError("cannot write " + path.string());
  return OkStatus();
}

Status PlotResult(const BenchServeOptions& options, const BenchServeResult& result) {
  std::vector<BenchFigures> runs;
  if (options.append_result) {
    ASSIGN_OR_RETURN(runs, ReadAllBenchFigures(ResultPath(options, result).string()));
  } else {
    ASSIGN_OR_RETURN(BenchFigures run, ParseBenchFigures(BenchServeJson(options, result)));
    runs.push_back(std::move(run));
  }
  return WriteLoadPlot(options.plot, result.model_id, ByLabel(std::move(runs), options.backend));
}

}  // namespace

StatusOr<BenchServeResult> BenchServe(const BenchServeOptions& options) {
  RETURN_IF_ERROR(CheckBenchServeOptions(options));
  ASSIGN_OR_RETURN(const Goodput goodput, ParseGoodput(options.goodput));
  ASSIGN_OR_RETURN(const std::vector<double> percentiles,
                   ParsePercentiles(options.metric_percentiles));
  ASSIGN_OR_RETURN(const std::unique_ptr<LoadClient> client, StartClient(options));

  ServedModel model{options.model, ""};
  if (model.id.empty()) {
    ASSIGN_OR_RETURN(model, FirstModel(*client, options.ready_check_timeout_s));
  }
  BenchServeResult result;
  result.model_id = model.id;
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!options.skip_tokenizer_init) {
    ASSIGN_OR_RETURN(result.tokenizer_id, FindTokenizer(options, model));
    ASSIGN_OR_RETURN(tokenizer, Tokenizer::Load(result.tokenizer_id));
  }
  ASSIGN_OR_RETURN(const std::vector<BenchPrompt> prompts,
                   MakePrompts(options, tokenizer.get(), TakesTokenIds(options)));

  const Arrivals arrivals = MakeArrivals(RulesOf(options), static_cast<int64_t>(prompts.size()),
                                         static_cast<uint64_t>(options.seed));
  const std::string& name =
      options.served_model_name.empty() ? model.id : options.served_model_name;
  const std::string id_prefix =
      options.request_id_prefix.empty() ? "bench-" + RandomHex(8) + "-" : options.request_id_prefix;
  const auto request = [&](size_t i, const std::string& id, double due) -> LoadRequest {
    const std::string body = RequestBody(options, RequestModel(options, name, i), prompts[i]);
    return {due, client->PostBytes(EndpointOf(options), body, "X-Request-Id: " + id_prefix + id),
            prompts[i].prompt_tokens};
  };
  LoadPlan plan = EmptyPlan(options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    plan.requests.push_back(request(i, std::to_string(i), arrivals.due[i]));
  }
  RETURN_IF_ERROR(Rehearse(options, request(0, "warmup", 0), client.get()));

  ProgressBar bar(prompts.size(), !options.disable_tqdm && isatty(STDERR_FILENO) != 0);
  plan.on_progress = [&bar](size_t num_done, size_t num_failed) { bar.Show(num_done, num_failed); };
  result.started_at = SystemClock().Unix();
  LoadRun run = client->Run(std::move(plan));
  bar.Finish();
  result.rate_changes = RateChanges(options, arrivals, result.started_at);
  result.client_cpu_s = run.cpu_s;
  if (!IsPooled(options.backend)) CountMissingTokens(tokenizer.get(), &run.outcomes);
  result.metrics = CalculateMetrics(run.outcomes, run.duration, goodput, percentiles);
  result.outcomes = std::move(run.outcomes);
  return result;
}

int RunBenchServe(const std::vector<std::string>& args) {
  constexpr std::string_view kAbout =
      "tandem bench serve [flags]: send requests to an OpenAI-compatible server and measure the "
      "responses.";
  BenchServeOptions options;
  const std::vector<Flag> flags = BenchServeFlags(options);
  const StatusOr<FlagOutcome> parsed = ParseFlags(flags, WithoutMeaningless(args, flags), kAbout);
  if (!parsed.ok()) return ReportFailure(kCommand, parsed.status(), kExitBadFlags);
  if (*parsed == FlagOutcome::kHelpShown) return kExitOk;
  if (const Status status = CheckBenchServeOptions(options); !status.ok()) {
    return ReportFailure(kCommand, status, kExitBadFlags);
  }
  if (const Status status = InitLog("tandem", "WARNING"); !status.ok()) {
    return ReportFailure(kCommand, status, kExitBadFlags);
  }

  const StatusOr<BenchServeResult> result = BenchServe(options);
  if (!result.ok()) {
    // A file of prompts that is not there.
    const bool is_missing = result.status().code() == StatusCode::kNotFound;
    return is_missing ? ReportFailure(kCommand, result.status(), kExitBadFlags)
                      : ReportFailure(kCommand, result.status());
  }
  size_t num_shown = 0;
  for (const RequestOutcome& outcome : result->outcomes) {
    if (outcome.success || num_shown++ >= kMaxShownErrors) continue;
    std::cerr << "failed request: " << outcome.error << std::endl;
  }
  std::cout << BenchServeReport(options, *result) << std::flush;
  if (options.save_result || options.append_result) {
    if (const Status status = SaveResult(options, *result); !status.ok()) {
      return ReportFailure(kCommand, status, kExitFailed);
    }
  }
  if (!options.plot.empty()) {
    if (const Status status = PlotResult(options, *result); !status.ok()) {
      return ReportFailure(kCommand, status, kExitFailed);
    }
  }
  return result->metrics.completed > 0 ? kExitOk : kExitFailed;
}

}  // namespace tandem
