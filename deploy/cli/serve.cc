#include "deploy/cli/serve.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>

#include "common/exit_status.h"
#include "common/flags.h"
#include "common/log.h"
#include "common/log_format.h"
#include "common/log_thread.h"
#include "deploy/cli/child_process.h"
#include "deploy/cli/command_line.h"
#include "deploy/cli/engine_layout.h"
#include "deploy/cli/environment.h"
#include "deploy/cli/model_pull.h"
#include "deploy/cli/report_failure.h"
#include "deploy/cli/serve_command_line.h"
#include "deploy/cli/supervisor.h"
#include "engine_core/flags/engine_config.h"
#include "frontend/config.h"

namespace tandem {
namespace {

constexpr std::string_view kCommand = "serve";
constexpr double kStopGraceSeconds = 10;  // for what happens beside waiting for requests
constexpr const char* kTakeOver = "--take-over";
constexpr std::string_view kAbout =
    "tandem serve MODEL [flags]: start a frontend and its engine cores and keep them running.\n"
    "MODEL is a Hugging Face folder, or org/name of one in the local Hugging Face cache.";

bool WantsHelp(const std::string& argument) {
  return argument == "-h" || argument == "--help" || argument.starts_with("--help=");
}

std::string Help(std::string_view filter) {
  ServeFlags own;
  FrontendConfig frontend;
  EngineConfig engine;
  std::vector<Flag> all = ServeFlagTable(own);
  for (const Flag& flag : PairFlags(frontend, engine)) all.push_back(flag);
  return FlagHelp(all, kAbout, filter);
}

StatusOr<std::vector<std::string>> ProgramCommand(std::string_view program,
                                                  const std::vector<std::string>& args,
                                                  const std::string& handshake_address) {
  ASSIGN_OR_RETURN(std::string path, ProgramBeside(program));
  std::vector<std::string> argv = {std::move(path)};
  argv.insert(argv.end(), args.begin(), args.end());
  argv.push_back("--handshake-address");
  argv.push_back(handshake_address);
  return argv;
}

// INVALID_ARGUMENT for a flag that only the other process has.
Status CheckFlagsAreOf(const std::vector<Flag>& own, const std::vector<Flag>& others,
                       const std::vector<std::string>& changes, std::string_view why) {
  for (const std::string& word : changes) {
    if (FindFlag(others, word) == nullptr || FindFlag(own, word) != nullptr) continue;
    return InvalidArgumentError(word + " is " + std::string(why));
  }
  return OkStatus();
}

// Words with a new model, relative to the folder of the command that asks for it.
std::vector<std::string> WithModelIn(const std::string& folder, const std::string& model,
                                     const std::vector<Flag>& flags,
                                     const std::vector<std::string>& words) {
  const std::filesystem::path path = std::filesystem::path(folder) / model;
  return ChangedFlags(flags, words, {"--model", path.lexically_normal().string()});
}

// The engine core's words with those of a swap, which was asked for in `folder`.
StatusOr<std::vector<std::string>> ChangedEngineWords(const std::vector<std::string>& words,
                                                      const std::vector<std::string>& changes,
                                                      const std::string& folder) {
  FrontendConfig frontend_config;
  EngineConfig before, after;
  const std::vector<Flag> frontend_flags = FrontendFlags(frontend_config);
  const std::vector<Flag> engine_flags = EngineFlags(after);
  RETURN_IF_ERROR(CheckFlagsAreOf(engine_flags, frontend_flags, changes,
                                  "the frontend's: a swap replaces the engine core"));
  ASSIGN_OR_RETURN(const PairCommandLine pair,
                   SplitCommandLine(changes, frontend_flags, engine_flags));
  EngineConfig changes_alone;  // only one model, and the like
  RETURN_IF_ERROR(ParseFlags(EngineFlags(changes_alone), pair.engine_core, kAbout).status());
  std::vector<std::string> changed = ChangedFlags(engine_flags, words, pair.engine_core);
  RETURN_IF_ERROR(ParseFlags(EngineFlags(before), words, kAbout).status());
  RETURN_IF_ERROR(ParseFlags(engine_flags, changed, kAbout).status());
  RETURN_IF_ERROR(CheckSameLayout(before, after));
  if (after.model == before.model) return changed;
  return WithModelIn(folder, after.model, engine_flags, changed);
}

// What each of several engine cores has of its own stays.
Status CheckMayChange(const EngineLayout& layout, const std::vector<std::string>& changes) {
  const auto is_cpu_bind = [](const std::string& word) {
    return word == "--cpu-bind" || word.starts_with("--cpu-bind=");
  };
  if (layout.num_local > 1 && std::any_of(changes.begin(), changes.end(), is_cpu_bind)) {
    return InvalidArgumentError("--cpu-bind: several engine cores keep their CPUs in a swap");
  }
  return OkStatus();
}

StatusOr<Supervisor::Program> ChangedEngine(const std::string& handshake_address,
                                            const EngineLayout& layout,
                                            const std::string& runtime_folder,
                                            const Supervisor::Program& now,
                                            const std::vector<std::string>& changes,
                                            const std::string& folder) {
  RETURN_IF_ERROR(CheckMayChange(layout, changes));
  ASSIGN_OR_RETURN(std::vector<std::string> words, ChangedEngineWords(now.words, changes, folder));
  ASSIGN_OR_RETURN(words, WordsOfSuccessor(layout, now.words, words, runtime_folder));
  ASSIGN_OR_RETURN(std::vector<std::string> argv,
                   ProgramCommand("tandem-engine-core", words, handshake_address));
  argv.emplace_back(kTakeOver);
  return Supervisor::Program{.name = now.name,
                             .argv = std::move(argv),
                             .environment = now.environment,
                             .words = std::move(words)};
}

// The frontend with the flags of a reload, which was asked for in `folder`.
StatusOr<Supervisor::Program> ChangedFrontend(const std::string& handshake_address,
                                              const Supervisor::Program& now,
                                              const std::vector<std::string>& changes,
                                              const std::string& folder) {
  FrontendConfig before, after;
  EngineConfig engine_config;
  const std::vector<Flag> frontend_flags = FrontendFlags(after);
  const std::vector<Flag> engine_flags = EngineFlags(engine_config);
  RETURN_IF_ERROR(CheckFlagsAreOf(frontend_flags, engine_flags, changes,
                                  "the engine core's: a reload replaces the frontend"));
  ASSIGN_OR_RETURN(const PairCommandLine pair,
                   SplitCommandLine(changes, frontend_flags, engine_flags));
  FrontendConfig changes_alone;
  RETURN_IF_ERROR(ParseFlags(FrontendFlags(changes_alone), pair.frontend, kAbout).status());
  std::vector<std::string> words = ChangedFlags(frontend_flags, now.words, pair.frontend);
  RETURN_IF_ERROR(ParseFlags(FrontendFlags(before), now.words, kAbout).status());
  RETURN_IF_ERROR(ParseFlags(frontend_flags, words, kAbout).status());
  RETURN_IF_ERROR(CheckSameLayout(before, after));
  RETURN_IF_ERROR(CheckApiKeys(after));
  if (after.model != before.model) words = WithModelIn(folder, after.model, frontend_flags, words);
  const bool has_keys = WithoutSecrets(frontend_flags, words) != words;
  words = WithoutSecrets(frontend_flags, words);
  ASSIGN_OR_RETURN(std::vector<std::string> argv,
                   ProgramCommand("tandem-frontend", words, handshake_address));
  argv.emplace_back(kTakeOver);
  return Supervisor::Program{.name = now.name,
                             .argv = std::move(argv),
                             .environment = has_keys ? KeyEnvironment(after) : now.environment,
                             .words = std::move(words)};
}

struct Programs {
  std::optional<Supervisor::Program> frontend;
  std::vector<Supervisor::Program> engines;
};

StatusOr<Programs> MakePrograms(const EngineLayout& layout, ServeCommandLine& line,
                                const std::vector<LocalEngine>& local_engines,
                                const std::string& folder, const std::string& handshake_address) {
  Programs programs;
  if (layout.has_frontend) {
    std::vector<std::string> words =
        WithoutSecrets(FrontendFlags(line.frontend), FrontendWords(layout, line));
    ASSIGN_OR_RETURN(std::vector<std::string> argv,
                     ProgramCommand("tandem-frontend", words, handshake_address));
    programs.frontend = Supervisor::Program{.name = "frontend",
                                            .argv = std::move(argv),
                                            .environment = KeyEnvironment(line.frontend),
                                            .words = std::move(words)};
  }
  for (const LocalEngine& engine : local_engines) {
    std::vector<std::string> words = engine.words;
    if (layout.num_prefill > 0) {
      const auto engine_index = static_cast<int>(programs.engines.size());
      words.push_back(KvTransferWord(layout, engine_index, folder));
    }
    ASSIGN_OR_RETURN(std::vector<std::string> argv,
                     ProgramCommand("tandem-engine-core", words, handshake_address));
    programs.engines.push_back({.name = engine.name,
                                .argv = std::move(argv),
                                .environment = engine.environment,
                                .words = std::move(words)});
  }
  return programs;
}

// Each program checks what it would start with; then the values are printed. What only starting can
// show (weights, adapters, memory, ports) is not checked.
int CheckConfig(const EngineLayout& layout, ServeCommandLine& line,
                const std::vector<LocalEngine>& local_engines) {
  constexpr const char* kNoFolder = "/nonexistent";  // nothing is bound in it
  for (const std::string& warning : line.warnings) std::cerr << "tandem serve: " << warning << "\n";
  const std::string address = layout.handshake_address.empty()
                                  ? "ipc://" + std::string(kNoFolder) + "/handshake"
                                  : layout.handshake_address;
  const StatusOr<Programs> programs = MakePrograms(layout, line, local_engines, kNoFolder, address);
  if (!programs.ok()) return ReportFailure(kCommand, programs.status(), kExitFailed);
  std::vector<Supervisor::Program> all = programs->engines;
  if (programs->frontend) all.insert(all.begin(), *programs->frontend);
  for (Supervisor::Program& program : all) {
    program.argv.emplace_back("--check-config");
    StatusOr<ChildProcess> child =
        ChildProcess::Start(program.argv, program.environment, {.stdout_to_stderr = true});
    if (!child.ok()) return ReportFailure(kCommand, child.status(), kExitFailed);
    if (const ChildProcess::Exit exit = child->Reap(); !exit.clean()) return exit.code();
  }
  std::cout << EffectiveConfig(line);
  return kExitOk;
}

// A variable that nothing reads is a warning, or an error where a flag asks for that.
Status CheckEnvironment(ServeCommandLine* line) {
  std::vector<Flag> flags = ServeFlagTable(line->own);
  for (const Flag& flag : PairFlags(line->frontend, line->engine)) flags.push_back(flag);
  std::string warning = UnreadVariablesWarning(UnreadVariables(environ, flags));
  if (warning.empty()) return OkStatus();
  if (line->own.fail_on_environ_validation) return InvalidArgumentError(std::move(warning));
  line->warnings.push_back(std::move(warning));
  return OkStatus();
}

}  // namespace

int RunServe(const std::vector<std::string>& args) {
  for (const std::string& argument : args) {
    if (!WantsHelp(argument)) continue;
    const size_t equals = argument.find('=');
    std::cout << Help(equals == argument.npos ? "" : argument.substr(equals + 1));
    return kExitOk;
  }

  // All values are also parsed here, so that a wrong one is refused once and before anything
  // starts.
  StatusOr<ServeCommandLine> line = ParseServeCommandLine(args, PullModelByName);
  if (!line.ok()) return ReportFailure(kCommand, line.status(), kExitBadFlags);
  if (const Status status = CheckEnvironment(&*line); !status.ok()) {
    return ReportFailure(kCommand, status, kExitBadFlags);
  }
  const FrontendConfig& frontend_config = line->frontend;
  const std::vector<Flag> frontend_flags = FrontendFlags(line->frontend);
  const StatusOr<EngineLayout> layout = LayoutOf(*line);
  if (!layout.ok()) return ReportFailure(kCommand, layout.status(), kExitBadFlags);
  for (std::string& idle : IdleFlags(*layout, *line)) line->warnings.push_back(std::move(idle));
  const StatusOr<std::vector<LocalEngine>> local_engines =
      LocalEngines(*layout, *line, std::getenv("CUDA_VISIBLE_DEVICES"));
  if (!local_engines.ok()) return ReportFailure(kCommand, local_engines.status(), kExitBadFlags);
  if (line->own.check_config) {
    HideSecretVariables(frontend_flags);
    return CheckConfig(*layout, *line, *local_engines);
  }
  signal(SIGPIPE, SIG_IGN);  // the log's reader may go away
  signal(SIGXFSZ, SIG_IGN);
  if (const Status status = InitLog("tandem", frontend_config.log_level); !status.ok()) {
    return ReportFailure(kCommand, status, kExitBadFlags);
  }
  const std::string changed = ChangedValues(*line);  // the next call sets a variable that it reads
  if (const Status status = SetLogFormat(frontend_config.log_format); !status.ok()) {
    return ReportFailure(kCommand, status, kExitBadFlags);
  }
  StartLogThread();
  for (const std::string& warning : line->warnings) LOG_WARNING << warning;
  LOG_INFO << "[config] " << changed;
  HideSecretVariables(frontend_flags);

  StatusOr<RuntimeDirectory> directory = RuntimeDirectory::Make();
  if (!directory.ok()) return ReportFailure(kCommand, directory.status(), kExitFailed);
  const std::string folder = directory->path();
  const std::string handshake_address = layout->handshake_address.empty()
                                            ? "ipc://" + folder + "/handshake"
                                            : layout->handshake_address;
  StatusOr<Programs> programs =
      MakePrograms(*layout, *line, *local_engines, folder, handshake_address);
  if (!programs.ok()) return ReportFailure(kCommand, programs.status(), kExitFailed);

  // The processes drain one after the other.
  const double stop_timeout_s = 2 * frontend_config.shutdown_timeout + kStopGraceSeconds;
  Supervisor supervisor(
      *std::move(directory), std::move(programs->frontend), std::move(programs->engines),
      std::bind_front(ChangedFrontend, handshake_address),
      std::bind_front(ChangedEngine, handshake_address, *layout, folder),
      {.stop_s = stop_timeout_s, .hang_s = frontend_config.engine_health.hang_timeout_s});
  const StatusOr<int> exit_code = supervisor.Run();
  return exit_code.ok() ? *exit_code : ReportFailure(kCommand, exit_code.status(), kExitFailed);
}

}  // namespace tandem
