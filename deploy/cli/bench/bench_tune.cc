#include "deploy/cli/bench/bench_tune.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/clock.h"
#include "common/exit_status.h"
#include "common/flags.h"
#include "common/log.h"
#include "common/strings.h"
#include "deploy/cli/bench/bench_figures.h"
#include "deploy/cli/bench/command_run.h"
#include "deploy/cli/bench/latency_limits.h"
#include "deploy/cli/bench/load_search.h"
#include "deploy/cli/bench/sweep_params.h"
#include "deploy/cli/bench/text_table.h"
#include "deploy/cli/bench/write_file.h"
#include "deploy/cli/child_process.h"
#include "deploy/cli/report_failure.h"
#include "deploy/cli/runtime_directory.h"

namespace tandem {
namespace {

constexpr std::string_view kCommand = "bench tune";
// A concurrency is measured over a few waves of requests, a rate over some seconds.
constexpr double kWaves = 3, kRateSeconds = 20;
constexpr double kLeastRequests = 16, kMostRequests = 2000;

struct TuneOptions {
  std::string model;
  std::vector<std::string> max_num_seqs = {"32", "128"};
  std::vector<std::string> max_num_batched_tokens = {"512", "2048"};
  std::string serve_params, serve_flags, bench_flags;
  std::vector<std::string> slo;
  std::string search = "concurrency";
  double min_load = 1, max_load = 256;
  int64_t num_prompts = 0, input_len = 512, output_len = 128;
  double max_minutes = 30, server_ready_timeout = 300;
  std::string output_json;
  bool show_stdout = false;
};

std::vector<Flag> TuneFlags(TuneOptions& o) {
  // clang-format off
  return {
      {"model", &o.model, "Model folder", {.positional = true}},
      {"slo", &o.slo, "Limits to keep: METRIC:STATISTIC:MS or METRIC:MS (p99), like e2el:p99:500 ttft:200"},
      {"max-num-seqs", &o.max_num_seqs, "Candidates; the word none leaves the flag out"},
      {"max-num-batched-tokens", &o.max_num_batched_tokens, "Candidates; none leaves the flag out"},
      {"serve-params", &o.serve_params, "JSON list of objects of flags (or a file with it), combined with each candidate"},
      {"serve-flags", &o.serve_flags, "More flags for every server, as one argument"},
      {"bench-flags", &o.bench_flags, "More flags for every load, those of tandem bench serve, as one argument"},
      {"search", &o.search, "What the load is: requests at once, or requests per second", {.choices = {"concurrency", "request-rate"}}},
      {"min-load", &o.min_load, "Where the search begins", {.min = 0.01, .max = 1e6}},
      {"max-load", &o.max_load, "Where it ends", {.min = 0.01, .max = 1e6}},
      {"num-prompts", &o.num_prompts, "Requests of one load; 0: by the load", {.min = 0, .max = 1e6}},
      {"input-len", &o.input_len, "Tokens of a prompt", {.min = 1, .max = 1 << 24}},
      {"output-len", &o.output_len, "Output tokens of a request", {.min = 1, .max = 1 << 24}},
      {"max-minutes", &o.max_minutes, "Most minutes of the search; it then reports what it has found", {.min = 0.01, .max = 1e5}},
      {"server-ready-timeout", &o.server_ready_timeout, "Seconds a server may take to be ready", {.min = 1, .max = 86400}},
      {"output-json", &o.output_json, "Write candidates and trials to this file"},
      {"show-stdout", &o.show_stdout, "Show what servers and loads print"},
  };
  // clang-format on
}

struct Trial {
  double load = 0;
  BenchFigures figures;
  std::string broken;  // limits it broke; empty when it kept all
};

struct Candidate {
  ParameterSet settings;
  std::vector<Trial> trials;
  std::string error;           // why the measurement is incomplete
  std::optional<size_t> best;  // index of a trial
};

ParameterSet Combined(const ParameterSet& a, const ParameterSet& b) {
  ParameterSet both = a;
  both.settings.insert(both.settings.end(), b.settings.begin(), b.settings.end());
  both.name += (both.name.empty() || b.name.empty() ? "" : ",") + b.name;
  return both;
}

// Every combination of a set and a value of the flag.
std::vector<ParameterSet> Crossed(const std::vector<ParameterSet>& sets, const std::string& flag,
                                  const std::vector<std::string>& values) {
  std::vector<ParameterSet> crossed;
  for (const ParameterSet& set : sets) {
    for (const std::string& value : values) {
      ParameterSet more;
      if (value != "none") {
        more.name = flag + "=" + value;
        more.settings.push_back({.flag = flag, .text = value, .words = {"--" + flag, value}});
      }
      crossed.push_back(Combined(set, more));
    }
  }
  return crossed;
}

struct TunePlan {
  CommandWords serve_command, bench_command;
  std::vector<LatencyLimit> limits;
  std::vector<Candidate> candidates;
};

StatusOr<TunePlan> MakePlan(const TuneOptions& options) {
  if (options.model.empty()) return InvalidArgumentError("no model: tandem bench tune MODEL");
  if (options.max_load < options.min_load) {
    return InvalidArgumentError("--max-load is below --min-load");
  }
  ASSIGN_OR_RETURN(const std::string tandem, ProgramBeside("tandem"));
  TunePlan plan;
  ASSIGN_OR_RETURN(plan.limits, ParseLatencyLimits(options.slo));
  ASSIGN_OR_RETURN(const CommandWords serve_flags, SplitShellWords(options.serve_flags));
  ASSIGN_OR_RETURN(const CommandWords bench_flags, SplitShellWords(options.bench_flags));
  plan.serve_command = {tandem, "serve", options.model};
  plan.serve_command.insert(plan.serve_command.end(), serve_flags.begin(), serve_flags.end());
  plan.bench_command = {tandem,
                        "bench",
                        "serve",
                        "--disable-tqdm",
                        "--num-warmups",
                        "2",
                        "--ignore-eos",
                        "--random-input-len",
                        std::to_string(options.input_len),
                        "--random-output-len",
                        std::to_string(options.output_len),
                        "--percentile-metrics",
                        "ttft,tpot,itl,e2el",
                        "--metric-percentiles",
                        PercentilesOf(plan.limits)};
  plan.bench_command.insert(plan.bench_command.end(), bench_flags.begin(), bench_flags.end());

  ASSIGN_OR_RETURN(std::vector<ParameterSet> sets, ParseParameterSets(options.serve_params));
  sets = Crossed(sets, "max-num-seqs", options.max_num_seqs);
  sets = Crossed(sets, "max-num-batched-tokens", options.max_num_batched_tokens);
  for (ParameterSet& set : sets) {
    plan.candidates.push_back({.settings = std::move(set), .trials = {}, .error = "", .best = {}});
  }
  return plan;
}

std::string LoadText(double load) {
  return load == std::floor(load) ? Decimal(load, 0) : Decimal(load, 2);
}

class Tune {
 public:
  Tune(const TuneOptions& options, TunePlan* plan, std::string folder)
      : options_(options),
        plan_(*plan),
        folder_(std::move(folder)),
        deadline_(clock_.Monotonic() + 60 * options.max_minutes) {}

  // Errors: CANCELLED only. The outcome of each candidate is in the plan.
  Status Run() {
    for (size_t i = 0; i < plan_.candidates.size(); ++i) {
      Candidate& candidate = plan_.candidates[i];
      if (clock_.Monotonic() > deadline_) {
        candidate.error = "no time left";
        continue;
      }
      std::cout << "[" << i + 1 << "/" << plan_.candidates.size() << "] "
                << (candidate.settings.name.empty() ? "default flags" : candidate.settings.name)
                << std::endl;
      Status status = Measure(&candidate);
      if (status.ok()) continue;
      if (status.code() == StatusCode::kCancelled) return status;
      candidate.error =
          status.code() == StatusCode::kDeadlineExceeded ? "no time left" : status.message();
      std::cout << "  " << candidate.error << std::endl;
    }
    return OkStatus();
  }

 private:
  Status Measure(Candidate* candidate) {
    ASSIGN_OR_RETURN(const int port, FreePort());
    const std::string url = "http://127.0.0.1:" + std::to_string(port);
    CommandWords command = WithSettings(plan_.serve_command, candidate->settings);
    command.insert(command.end(), {"--host", "127.0.0.1", "--port", std::to_string(port)});
    const double ready_s = std::min(options_.server_ready_timeout, deadline_ - clock_.Monotonic());
    ASSIGN_OR_RETURN(const std::unique_ptr<CommandServer> server,
                     CommandServer::Start(command, url, Log("server"), ready_s));
    const bool whole = options_.search == "concurrency";
    const double min = whole ? std::ceil(options_.min_load) : options_.min_load;
    LoadSearch search({.min = min, .max = std::max(min, options_.max_load), .whole = whole});
    while (const std::optional<double> load = search.Next()) {
      ASSIGN_OR_RETURN(Trial trial, RunLoad(url, *load));
      const double throughput = trial.figures.Get("output_throughput");
      std::cout << "  " << options_.search << " " << LoadText(*load) << ": "
                << Decimal(throughput, 1) << " tok/s, "
                << (trial.broken.empty() ? "within limits" : "beyond: " + trial.broken)
                << std::endl;
      search.Record({*load, trial.broken.empty(), throughput});
      candidate->trials.push_back(std::move(trial));
      if (search.best() == nullptr) continue;
      for (size_t i = 0; i < candidate->trials.size(); ++i) {
        if (candidate->trials[i].load == search.best()->load) candidate->best = i;
      }
    }
    return OkStatus();
  }

  StatusOr<Trial> RunLoad(const std::string& url, double load) {
    const bool is_rate = options_.search == "request-rate";
    const double wanted = is_rate ? kRateSeconds * load : kWaves * load;
    const double num_prompts = options_.num_prompts > 0
                                   ? static_cast<double>(options_.num_prompts)
                                   : std::clamp(std::ceil(wanted), kLeastRequests, kMostRequests);
    CommandWords command = plan_.bench_command;
    // Its own seed, so that the prefix cache has no prompt of an earlier load.
    command.insert(command.end(), {"--base-url", url,
                                   "--" + std::string(is_rate ? "request-rate" : "max-concurrency"),
                                   LoadText(load), "--num-prompts", Decimal(num_prompts, 0),
                                   "--seed", std::to_string(++seed_), "--save-result",
                                   "--result-dir", folder_, "--result-filename", "load.json"});
    RETURN_IF_ERROR(
        RunCommand(command, Log("load"), std::max(0.0, deadline_ - clock_.Monotonic())));
    ASSIGN_OR_RETURN(BenchFigures figures, ReadBenchFigures(folder_ + "/load.json"));
    std::string broken = BrokenLimits(plan_.limits, figures);
    return Trial{load, std::move(figures), std::move(broken)};
  }

  std::string Log(const std::string& of) const {
    return options_.show_stdout ? "" : folder_ + "/" + of + ".log";
  }

  const SystemClock clock_;
  const TuneOptions& options_;
  TunePlan& plan_;
  const std::string folder_;
  const double deadline_;
  int seed_ = 0;
};

const Candidate* BestCandidate(const TunePlan& plan) {
  const Candidate* best = nullptr;
  double most = 0;
  for (const Candidate& candidate : plan.candidates) {
    if (!candidate.best) continue;
    const double throughput = candidate.trials[*candidate.best].figures.Get("output_throughput");
    if (best == nullptr || throughput > most) {
      best = &candidate;
      most = throughput;
    }
  }
  return best;
}

std::string ResultTable(const TuneOptions& options, const TunePlan& plan) {
  TableRow heading = {"flags", options.search, "tok/s", "req/s"};
  for (const LatencyLimit& limit : plan.limits) {
    heading.push_back(limit.statistic + " " + limit.metric);
  }
  heading.push_back("");
  std::vector<TableRow> rows;
  for (const Candidate& candidate : plan.candidates) {
    TableRow row = {candidate.settings.name.empty() ? "default" : candidate.settings.name};
    if (candidate.best) {
      const Trial& trial = candidate.trials[*candidate.best];
      row.insert(row.end(),
                 {LoadText(trial.load), Decimal(trial.figures.Get("output_throughput"), 1),
                  Decimal(trial.figures.Get("request_throughput"), 2)});
      for (const LatencyLimit& limit : plan.limits) {
        row.push_back(Decimal(trial.figures.Get(limit.Field()), 1));
      }
      row.push_back(candidate.error);
    } else {
      row.resize(heading.size() - 1);
      const std::string why = candidate.trials.empty() ? "not measured" : "no load within limits";
      const std::string first = candidate.error.substr(0, candidate.error.find('\n'));
      row.push_back(first.empty() ? why : first);
    }
    rows.push_back(std::move(row));
  }
  return AlignedTable(heading, rows);
}

std::string ResultJson(const TuneOptions& options, const TunePlan& plan) {
  nlohmann::ordered_json root, list = nlohmann::ordered_json::array();
  const Candidate* best = BestCandidate(plan);
  root["search"] = options.search;
  for (const LatencyLimit& limit : plan.limits) root["slo"].push_back(limit.ToString());
  for (const Candidate& candidate : plan.candidates) {
    nlohmann::ordered_json row;
    row["command"] = ShellCommand(WithSettings(plan.serve_command, candidate.settings));
    row["is_best"] = &candidate == best;
    if (candidate.best) row["best_load"] = candidate.trials[*candidate.best].load;
    if (!candidate.error.empty()) row["error"] = candidate.error;
    row["trials"] = nlohmann::ordered_json::array();
    for (const Trial& trial : candidate.trials) {
      nlohmann::ordered_json entry;
      entry["load"] = trial.load;
      entry["within_limits"] = trial.broken.empty();
      for (const auto& [name, value] : trial.figures.numbers) entry[name] = value;
      row["trials"].push_back(std::move(entry));
    }
    list.push_back(std::move(row));
  }
  root["candidates"] = std::move(list);
  return root.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Prints the table and the recommendation; false when there is none.
bool Report(const TuneOptions& options, const TunePlan& plan) {
  std::cout << "\n" << ResultTable(options, plan) << std::endl;
  const Candidate* best = BestCandidate(plan);
  if (best == nullptr) {
    std::cout << "no candidate was measured within the limits" << std::endl;
    return false;
  }
  CommandWords command = WithSettings(plan.serve_command, best->settings);
  command[0] = "tandem";
  const Trial& trial = best->trials[*best->best];
  std::cout << "best: " << Decimal(trial.figures.Get("output_throughput"), 1) << " tok/s at "
            << LoadText(trial.load)
            << (options.search == "concurrency" ? " requests at once" : " requests per second")
            << ", by\n  " << ShellCommand(command) << std::endl;
  return true;
}

}  // namespace

int RunBenchTune(const std::vector<std::string>& args) {
  constexpr std::string_view kAbout =
      "tandem bench tune MODEL [flags]: find the flags of tandem serve that give most tokens per "
      "second within limits on latency.";
  TuneOptions options;
  const StatusOr<FlagOutcome> parsed = ParseFlags(TuneFlags(options), args, kAbout);
  if (!parsed.ok()) return ReportFailure(kCommand, parsed.status(), kExitBadFlags);
  if (*parsed == FlagOutcome::kHelpShown) return kExitOk;
  StatusOr<TunePlan> plan = MakePlan(options);
  if (!plan.ok()) return ReportFailure(kCommand, plan.status(), kExitBadFlags);
  if (const Status status = InitLog("tandem", "WARNING"); !status.ok()) {
    return ReportFailure(kCommand, status, kExitBadFlags);
  }
  const StatusOr<RuntimeDirectory> folder = RuntimeDirectory::Make();
  if (!folder.ok()) return ReportFailure(kCommand, folder.status(), kExitFailed);

  const StopSignals stop_signals;
  const Status status = Tune(options, &*plan, folder->path()).Run();
  const bool found = Report(options, *plan);
  if (!options.output_json.empty()) {
    const Status saved = WriteFile(options.output_json, ResultJson(options, *plan));
    if (!saved.ok()) return ReportFailure(kCommand, saved, kExitFailed);
  }
  if (!status.ok()) return ReportFailure(kCommand, status, kExitInterrupted);
  return found ? kExitOk : kExitFailed;
}

}  // namespace tandem
