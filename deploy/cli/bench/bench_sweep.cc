#include "deploy/cli/bench/bench_sweep.h"

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>

#include "common/clock.h"
#include "common/exit_status.h"
#include "common/flags.h"
#include "deploy/cli/bench/command_run.h"
#include "deploy/cli/bench/load_plot.h"
#include "deploy/cli/bench/sweep_params.h"
#include "deploy/cli/bench/sweep_summary.h"
#include "deploy/cli/bench/write_file.h"
#include "deploy/cli/report_failure.h"

namespace tandem {
namespace {

constexpr std::string_view kCommand = "bench sweep";
constexpr size_t kMaxNameBytes = 120;
constexpr double kBenchTimeoutSeconds = 7 * 86400;

struct SweepOptions {
  std::string serve_cmd, bench_cmd, after_bench_cmd;
  std::string serve_params, bench_params, link_vars;
  std::string output_dir = "results", experiment_name, plot;
  int64_t num_runs = 3, warmup_num_prompts = 0;
  double server_ready_timeout = 300;
  bool show_stdout = false, dry_run = false, resume = false, continue_on_error = false;
};

std::vector<Flag> SweepFlags(SweepOptions& o) {
  // clang-format off
  return {
      {"serve-cmd", &o.serve_cmd, "Command that starts the server; empty: one runs already"},
      {"bench-cmd", &o.bench_cmd, "Command that loads it: tandem bench serve …; its --base-url or --port is where /health is awaited"},
      {"after-bench-cmd", &o.after_bench_cmd, "Command run after each run, to reset a cache for example"},
      {"serve-params", &o.serve_params, "JSON list of objects whose keys are flags of --serve-cmd, or a file with such a list"},
      {"bench-params", &o.bench_params, "The same for --bench-cmd; every combination of both lists is run"},
      {"link-vars", &o.link_vars, "SERVE_FLAG=BENCH_FLAG,…: run only the combinations in which these are equal"},
      {"output-dir", &o.output_dir, "Folder of experiments"},
      {"experiment-name", &o.experiment_name, "Folder of this one. Default: date and time"},
      {"num-runs", &o.num_runs, "Runs of each pair", {.min = 1, .max = 10000}},
      {"warmup-num-prompts", &o.warmup_num_prompts, "Requests before each run that are not measured", {.min = 0, .max = 1 << 20}},
      {"server-ready-timeout", &o.server_ready_timeout, "Seconds a server may take to be ready", {.min = 1, .max = 86400}},
      {"plot", &o.plot, "Draw TTFT, ITL and throughput against load into this SVG file"},
      {"show-stdout", &o.show_stdout, "Show what servers and benches print, in place of log files"},
      {"dry-run", &o.dry_run, "Print the commands only"},
      {"resume", &o.resume, "Keep the runs that --experiment-name has and run the others"},
      {"continue-on-error", &o.continue_on_error, "Continue with the next run or server after a failure"},
  };
  // clang-format on
}

std::string NowName() {
  const auto now = static_cast<std::time_t>(SystemClock().Unix());
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
  return text;
}

// A set's name as a folder; the number keeps shortened or equal names apart.
std::string FolderName(std::string_view kind, size_t index, const ParameterSet& set) {
  std::string name = std::string(kind) + std::to_string(index + 1);
  if (!set.name.empty()) name += "-" + set.name;
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-_=,.").find(c) != std::string_view::npos;
    if (!plain) c = '_';
  }
  return name.substr(0, kMaxNameBytes);
}

struct SweepPlan {
  CommandWords serve_command, bench_command, after_command;
  std::vector<ParameterSet> serve_sets, bench_sets;
  std::vector<Combination> combinations;
  std::filesystem::path folder;
};

StatusOr<SweepPlan> MakePlan(const SweepOptions& options) {
  SweepPlan plan;
  ASSIGN_OR_RETURN(plan.serve_command, SplitShellWords(options.serve_cmd));
  ASSIGN_OR_RETURN(plan.bench_command, SplitShellWords(options.bench_cmd));
  ASSIGN_OR_RETURN(plan.after_command, SplitShellWords(options.after_bench_cmd));
  if (plan.bench_command.empty()) {
    return InvalidArgumentError("give --bench-cmd, the command that loads the server");
  }
  ASSIGN_OR_RETURN(plan.serve_sets, ParseParameterSets(options.serve_params));
  ASSIGN_OR_RETURN(plan.bench_sets, ParseParameterSets(options.bench_params));
  if (plan.serve_command.empty() && !options.serve_params.empty()) {
    return InvalidArgumentError("--serve-params need --serve-cmd");
  }
  ASSIGN_OR_RETURN(const std::vector<VariableLink> links, ParseLinks(options.link_vars));
  ASSIGN_OR_RETURN(plan.combinations, CrossParameters(plan.serve_sets, plan.bench_sets, links));
  if (plan.combinations.empty()) return InvalidArgumentError("--link-vars leave no pair to run");
  if (options.resume && options.experiment_name.empty()) {
    return InvalidArgumentError("--resume needs --experiment-name");
  }
  const std::string name = options.experiment_name.empty() ? NowName() : options.experiment_name;
  plan.folder = std::filesystem::path(options.output_dir) / name;
  std::error_code error;
  if (!options.resume && !options.dry_run && std::filesystem::exists(plan.folder, error)) {
    return InvalidArgumentError(plan.folder.string() +
                                " exists; --resume continues it, or choose another name");
  }
  return plan;
}

class Sweep {
 public:
  Sweep(const SweepOptions& options, const SweepPlan& plan) : options_(options), plan_(plan) {}

  Status Run() {
    for (const Combination& combination : plan_.combinations) {
      Status status = RunServer(combination);
      if (status.ok()) continue;
      if (status.code() == StatusCode::kCancelled || !options_.continue_on_error) return status;
      std::cerr << "tandem bench sweep: " << status.message() << std::endl;
      any_failed_ = true;
    }
    return OkStatus();
  }

  const std::vector<SweepRun>& runs() const { return runs_; }
  bool any_failed() const { return any_failed_; }

 private:
  // One server configuration and all its loads. Errors: those that end the sweep.
  Status RunServer(const Combination& combination) {
    const ParameterSet& serve = plan_.serve_sets[combination.serve_idx];
    const std::filesystem::path folder =
        plan_.folder / FolderName("serve", combination.serve_idx, serve);
    const CommandWords command =
        plan_.serve_command.empty() ? CommandWords{} : WithSettings(plan_.serve_command, serve);
    if (options_.dry_run) {
      if (!command.empty()) std::cout << ShellCommand(command) << std::endl;
    } else if (!HasAllResults(combination, folder)) {
      std::error_code error;
      std::filesystem::create_directories(folder, error);
      if (error) return UnavailableError("create " + folder.string() + ": " + error.message());
    }

    std::unique_ptr<CommandServer> server;
    if (!command.empty() && !options_.dry_run && !HasAllResults(combination, folder)) {
      std::cout << "server: " << ShellCommand(command) << std::endl;
      const CommandWords bench =
          WithSettings(plan_.bench_command, plan_.bench_sets[combination.bench_idx.front()]);
      StatusOr<std::unique_ptr<CommandServer>> started = CommandServer::Start(
          command, BenchUrl(bench), LogPath(folder / "server.log"), options_.server_ready_timeout);
      if (!started.ok()) return NoteAll(combination, folder, started.status());
      server = std::move(*started);
    }
    for (const size_t bench_idx : combination.bench_idx) {
      for (int run = 1; run <= options_.num_runs; ++run) {
        RETURN_IF_ERROR(RunBench(serve, bench_idx, run, folder));
      }
    }
    return OkStatus();
  }

  std::filesystem::path ResultPath(const std::filesystem::path& folder, size_t bench_idx,
                                   int run) const {
    return folder / FolderName("bench", bench_idx, plan_.bench_sets[bench_idx]) /
           ("run" + std::to_string(run) + ".json");
  }

  bool HasAllResults(const Combination& combination, const std::filesystem::path& folder) const {
    for (const size_t bench_idx : combination.bench_idx) {
      for (int run = 1; run <= options_.num_runs; ++run) {
        if (!ReadBenchFigures(ResultPath(folder, bench_idx, run).string()).ok()) return false;
      }
    }
    return true;
  }

  // If the server did not start, the summary has its error for each run that was not made.
  Status NoteAll(const Combination& combination, const std::filesystem::path& folder,
                 const Status& status) {
    for (const size_t bench_idx : combination.bench_idx) {
      for (int run = 1; run <= options_.num_runs; ++run) {
        SweepRun row{.serve = &plan_.serve_sets[combination.serve_idx],
                     .bench = &plan_.bench_sets[bench_idx],
                     .run = run,
                     .file = ResultPath(folder, bench_idx, run).string(),
                     .error = "",
                     .figures = {}};
        StatusOr<BenchFigures> figures = ReadBenchFigures(row.file);
        if (figures.ok()) {
          row.figures = std::move(*figures);
        } else {
          row.error = status.message();
        }
        runs_.push_back(std::move(row));
      }
    }
    return status;
  }

  Status RunBench(const ParameterSet& serve, size_t bench_idx, int run,
                  const std::filesystem::path& folder) {
    const ParameterSet& bench = plan_.bench_sets[bench_idx];
    const std::filesystem::path path = ResultPath(folder, bench_idx, run);
    CommandWords command = WithSettings(plan_.bench_command, bench);
    if (options_.warmup_num_prompts > 0) {
      command.insert(command.end(), {"--num-warmups", std::to_string(options_.warmup_num_prompts)});
    }
    command.insert(command.end(), {"--save-result", "--result-dir", path.parent_path().string(),
                                   "--result-filename", path.filename().string()});
    if (options_.dry_run) {
      std::cout << "  " << ShellCommand(command) << std::endl;
      return OkStatus();
    }
    SweepRun row{.serve = &serve,
                 .bench = &bench,
                 .run = run,
                 .file = path.string(),
                 .error = "",
                 .figures = {}};
    StatusOr<BenchFigures> figures = ReadBenchFigures(path.string());
    if (!figures.ok()) figures = Measure(command, path);
    const Status status = figures.status();
    if (status.ok()) {
      row.figures = std::move(*figures);
    } else {
      row.error = status.message();
      any_failed_ = true;
    }
    std::cout << "  " << (bench.name.empty() ? "run" : bench.name) << " " << run << "/"
              << options_.num_runs << ": "
              << (status.ok() ? std::to_string(row.figures.Get("output_throughput")) + " tok/s"
                              : status.message())
              << std::endl;
    runs_.push_back(std::move(row));
    const bool goes_on = options_.continue_on_error && status.code() != StatusCode::kCancelled;
    return goes_on ? OkStatus() : status;
  }

  StatusOr<BenchFigures> Measure(const CommandWords& command, const std::filesystem::path& path) {
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    std::filesystem::path log = path;
    log.replace_extension(".log");
    RETURN_IF_ERROR(RunCommand(command, LogPath(log), kBenchTimeoutSeconds));
    if (!plan_.after_command.empty()) {
      log.replace_extension(".after.log");
      RETURN_IF_ERROR(RunCommand(plan_.after_command, LogPath(log), kBenchTimeoutSeconds));
    }
    return ReadBenchFigures(path.string());
  }

  std::string LogPath(const std::filesystem::path& path) const {
    return options_.show_stdout ? "" : path.string();
  }

  const SweepOptions& options_;
  const SweepPlan& plan_;
  std::vector<SweepRun> runs_;
  bool any_failed_ = false;
};

// Writes what there is, also for an interrupted sweep.
Status WriteSummary(const SweepOptions& options, const SweepPlan& plan,
                    const std::vector<SweepRun>& runs) {
  if (runs.empty()) return OkStatus();
  RETURN_IF_ERROR(WriteFile(plan.folder / "summary.json", SweepJson(runs)));
  RETURN_IF_ERROR(WriteFile(plan.folder / "summary.csv", SweepCsv(runs)));
  std::cout << "\n" << SweepTable(runs) << "\nresults: " << plan.folder.string() << std::endl;
  if (options.plot.empty()) return OkStatus();
  return WriteLoadPlot(options.plot, "Latency and throughput against load", SweepPlotRuns(runs));
}

int RunSweepServe(const std::vector<std::string>& args) {
  constexpr std::string_view kAbout =
      "tandem bench sweep serve: run a bench against servers with crossed settings of both.";
  SweepOptions options;
  const StatusOr<FlagOutcome> parsed = ParseFlags(SweepFlags(options), args, kAbout);
  if (!parsed.ok()) return ReportFailure(kCommand, parsed.status(), kExitBadFlags);
  if (*parsed == FlagOutcome::kHelpShown) return kExitOk;
  const StatusOr<SweepPlan> plan = MakePlan(options);
  if (!plan.ok()) return ReportFailure(kCommand, plan.status(), kExitBadFlags);

  const StopSignals stop_signals;
  Sweep sweep(options, *plan);
  const Status status = sweep.Run();
  const Status written = WriteSummary(options, *plan, sweep.runs());
  if (status.code() == StatusCode::kCancelled) {
    return ReportFailure(kCommand, status, kExitInterrupted);
  }
  if (!status.ok()) return ReportFailure(kCommand, status, kExitFailed);
  if (!written.ok()) return ReportFailure(kCommand, written, kExitFailed);
  return sweep.any_failed() ? kExitFailed : kExitOk;
}

}  // namespace

int RunBenchSweep(const std::vector<std::string>& args) {
  constexpr std::string_view kUsage =
      "usage: tandem bench sweep <what> [flags], tandem bench sweep <what> --help\n"
      "  serve      [flags]: cross settings of a server and of a bench\n"
      "  plot       [flags]: draw the result\n";
  const std::string what = args.empty() ? "" : args[0];
  if (what == "serve") return RunSweepServe({args.begin() + 1, args.end()});
  if (what == "plot") return RunBenchPlot({args.begin() + 1, args.end()});
  const bool asked = what == "--help" || what == "-h" || what == "help";
  (asked ? std::cout : std::cerr) << kUsage;
  return asked ? kExitOk : kExitBadFlags;
}

}  // namespace tandem
