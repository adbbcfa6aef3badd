#include "deploy/cli/serve.h"

#include <filesystem>
#include <iostream>

#include "common/exit_status.h"
#include "common/flags.h"
#include "common/log.h"
#include "deploy/cli/child_process.h"
#include "deploy/cli/command_line.h"
#include "deploy/cli/supervisor.h"
#include "engine_core/flags/engine_config.h"
#include "frontend/config.h"

namespace tandem {
namespace {

constexpr double kStopGraceSeconds = 10;  // for what happens beside waiting for requests
constexpr std::string_view kAbout =
    "tandem serve MODEL [flags]: start frontend and engine core and keep them running.\n"
    "MODEL is a Hugging Face folder.";

int Refuse(const Status& status, int exit_code) {
  std::cerr << "tandem serve: " << status.message() << std::endl;
  return exit_code;
}

bool WantsHelp(const std::string& argument) {
  return argument == "-h" || argument == "--help" || argument.starts_with("--help=");
}

// Both tables together; a flag that both have is listed once.
std::string Help(const std::vector<Flag>& frontend, const std::vector<Flag>& engine,
                 std::string_view filter) {
  std::vector<Flag> all = frontend;
  for (const Flag& flag : engine) {
    if (FindFlag(frontend, "--" + std::string(flag.name)) == nullptr) all.push_back(flag);
  }
  return FlagHelp(all, kAbout, filter);
}

// We start one engine and choose its handshake address: another layout would wait forever.
Status CheckOnePair(const FrontendConfig& frontend, const EngineConfig& engine) {
  std::string_view flag;
  if (frontend.data_parallel_size != 1) flag = "--data-parallel-size";
  if (engine.data_parallel_rank != 0) flag = "--data-parallel-rank";
  if (!frontend.data_parallel_address.empty()) flag = "--data-parallel-address";
  if (!frontend.handshake_address.empty()) flag = "--handshake-address";
  if (flag.empty()) return OkStatus();
  return InvalidArgumentError(std::string(flag) +
                              ": this command starts one engine core for its frontend; for other "
                              "layouts start tandem-frontend and each tandem-engine-core yourself");
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

// The frontend's keys, for its environment: ps shows every command line to everybody.
std::vector<std::string> KeyEnvironment(const FrontendConfig& config) {
  std::string lines;
  for (const std::string& key : config.api_keys) lines += (lines.empty() ? "" : "\n") + key;
  if (lines.empty()) return {};
  return {"TANDEM_API_KEY=" + lines};
}

// The engine core's words with those of a swap, which was asked for in `folder`.
StatusOr<std::vector<std::string>> ChangedEngineWords(const std::vector<std::string>& words,
                                                      const std::vector<std::string>& changes,
                                                      const std::string& folder) {
  FrontendConfig frontend_config;
  EngineConfig before, after;
  const std::vector<Flag> frontend_flags = FrontendFlags(frontend_config);
  const std::vector<Flag> engine_flags = EngineFlags(after);
  for (const std::string& word : changes) {
    if (FindFlag(frontend_flags, word) == nullptr || FindFlag(engine_flags, word) != nullptr)
      continue;
    return InvalidArgumentError(word + " is the frontend's: a swap replaces the engine core");
  }
  ASSIGN_OR_RETURN(const PairCommandLine pair,
                   SplitCommandLine(changes, frontend_flags, engine_flags));
  std::vector<std::string> changed = ChangedFlags(engine_flags, words, pair.engine_core);
  RETURN_IF_ERROR(ParseFlags(EngineFlags(before), words, kAbout).status());
  RETURN_IF_ERROR(ParseFlags(engine_flags, changed, kAbout).status());
  RETURN_IF_ERROR(CheckOnePair(FrontendConfig(), after));
  if (!after.handshake_address.empty() || !after.data_parallel_address.empty()) {
    return InvalidArgumentError("the address of the frontend stays as it is");
  }
  if (after.model == before.model) return changed;
  const std::filesystem::path model = std::filesystem::path(folder) / after.model;
  return ChangedFlags(engine_flags, changed, {"--model", model.lexically_normal().string()});
}

}  // namespace

int RunServe(const std::vector<std::string>& args) {
  FrontendConfig frontend_config;
  EngineConfig engine_config;
  const std::vector<Flag> frontend_flags = FrontendFlags(frontend_config);
  const std::vector<Flag> engine_flags = EngineFlags(engine_config);
  for (const std::string& argument : args) {
    if (!WantsHelp(argument)) continue;
    const size_t equals = argument.find('=');
    std::cout << Help(frontend_flags, engine_flags,
                      equals == argument.npos ? "" : argument.substr(equals + 1));
    return 0;
  }

  // Also parsed here, so that a wrong value is refused once and before anything starts.
  const StatusOr<PairCommandLine> pair = SplitCommandLine(args, frontend_flags, engine_flags);
  if (!pair.ok()) return Refuse(pair.status(), kExitBadFlags);
  for (const auto& [flags, words] : {std::pair(&frontend_flags, &pair->frontend),
                                     std::pair(&engine_flags, &pair->engine_core)}) {
    const StatusOr<FlagOutcome> parsed = ParseFlags(*flags, *words, kAbout);
    if (!parsed.ok()) return Refuse(parsed.status(), kExitBadFlags);
  }
  if (frontend_config.model.empty()) {
    return Refuse(InvalidArgumentError("no model: tandem serve MODEL"), kExitBadFlags);
  }
  if (const Status status = CheckOnePair(frontend_config, engine_config); !status.ok()) {
    return Refuse(status, kExitBadFlags);
  }
  if (const Status status = InitLog("tandem", frontend_config.log_level); !status.ok()) {
    return Refuse(status, kExitBadFlags);
  }
  HideSecretVariables(frontend_flags);
  for (const std::string& flag : pair->ignored)
    LOG_WARNING << flag << " has no effect here and is ignored";

  const StatusOr<std::string> folder = Supervisor::MakeRuntimeDirectory();
  if (!folder.ok()) return Refuse(folder.status(), kExitFailed);
  const std::string handshake_address = "ipc://" + *folder + "/handshake";
  const StatusOr<std::vector<std::string>> frontend = ProgramCommand(
      "tandem-frontend", WithoutSecrets(frontend_flags, pair->frontend), handshake_address);
  const StatusOr<std::vector<std::string>> engine =
      ProgramCommand("tandem-engine-core", pair->engine_core, handshake_address);
  if (!frontend.ok()) return Refuse(frontend.status(), kExitFailed);
  if (!engine.ok()) return Refuse(engine.status(), kExitFailed);

  const auto changed_engine =
      [handshake_address](const Supervisor::Program& now, const std::vector<std::string>& changes,
                          const std::string& directory) -> StatusOr<Supervisor::Program> {
    ASSIGN_OR_RETURN(std::vector<std::string> words,
                     ChangedEngineWords(now.words, changes, directory));
    ASSIGN_OR_RETURN(std::vector<std::string> argv,
                     ProgramCommand("tandem-engine-core", words, handshake_address));
    argv.emplace_back("--take-over");
    return Supervisor::Program{
        .name = now.name, .argv = std::move(argv), .words = std::move(words)};
  };
  // The processes drain one after the other.
  const double stop_timeout_s = 2 * frontend_config.shutdown_timeout + kStopGraceSeconds;
  Supervisor supervisor(
      *folder, {"frontend", *frontend, KeyEnvironment(frontend_config)},
      {.name = "engine core", .argv = *engine, .words = pair->engine_core}, changed_engine,
      {.stop_s = stop_timeout_s, .hang_s = frontend_config.engine_health.hang_timeout_s});
  const StatusOr<int> exit_code = supervisor.Run();
  return exit_code.ok() ? *exit_code : Refuse(exit_code.status(), kExitFailed);
}

}  // namespace tandem
