#include "deploy/cli/replace.h"

#include <filesystem>
#include <iostream>
#include <optional>

#include "common/exit_status.h"
#include "common/strings.h"
#include "deploy/cli/arguments.h"
#include "deploy/cli/command_line.h"
#include "deploy/cli/control_socket.h"
#include "deploy/cli/model_pull.h"
#include "deploy/cli/report_failure.h"
#include "engine_core/flags/engine_config.h"
#include "frontend/config.h"

namespace tandem {
namespace {

constexpr std::string_view kAboutSwap =
    "tandem swap [--server PID] [--model MODEL] [flags]: replace the engine core of a running\n"
    "`tandem serve` by one with other flags, other weights of the same tokenizer, or a new "
    "program\n"
    "at the same path. No request is lost. Flags that are not given stay as they are.";
constexpr std::string_view kAboutReload =
    "tandem reload [--server PID] [flags]: replace the frontend of a running `tandem serve` by "
    "one\n"
    "with other flags or a new program at the same path. No connection is refused, and open ones\n"
    "end where they are. Flags that are not given stay as they are.";

// Takes --server PID out of the words; 0: it is not there.
StatusOr<pid_t> TakeServer(std::vector<std::string>* words) {
  constexpr std::string_view kFlag = "--server";
  pid_t pid = 0;
  for (size_t i = 0; i < words->size();) {
    const std::string word = (*words)[i];
    const bool has_value = word.starts_with(std::string(kFlag) + "=");
    if (word != kFlag && !has_value) {
      ++i;
      continue;
    }
    const size_t num_words = has_value ? 1 : 2;
    if (i + num_words > words->size()) return InvalidArgumentError("--server needs a process id");
    const std::string value = has_value ? word.substr(kFlag.size() + 1) : (*words)[i + 1];
    const std::optional<int> number = ParseNumber<int>(value);
    if (!number || *number <= 0) {
      return InvalidArgumentError("--server is '" + value + "', must be a process id");
    }
    pid = *number;
    const auto begin = words->begin() + static_cast<std::ptrdiff_t>(i);
    words->erase(begin, begin + static_cast<std::ptrdiff_t>(num_words));
  }
  return pid;
}

// The folder or file in place of a --model that is named as on a hub, which the server does not
// look up: here it may be downloaded, and its progress is seen.
Status FindNamedModel(std::vector<std::string>* words) {
  constexpr std::string_view kFlag = "--model", kFlagWithValue = "--model=";
  for (size_t i = 0; i < words->size(); ++i) {
    std::string& word = (*words)[i];
    const bool has_value = word.starts_with(kFlagWithValue);
    if (!has_value && (word != kFlag || i + 1 == words->size())) continue;
    const std::string name = has_value ? word.substr(kFlagWithValue.size()) : (*words)[i + 1];
    ASSIGN_OR_RETURN(const std::optional<std::string> found,
                     FindOrPullModel(name, {.folder = {}, .revision = {}, .needs_weights = true},
                                     PullModelByName));
    if (!found) continue;
    if (has_value) {
      word = std::string(kFlagWithValue) + *found;
    } else {
      (*words)[i + 1] = *found;
    }
  }
  return OkStatus();
}

// command: its word for the server.
int RunReplacement(const std::string& command, const std::vector<std::string>& args,
                   const std::vector<Flag>& flags, std::string_view about) {
  for (const std::string& word : args) {
    if (word != "-h" && word != "--help" && !word.starts_with("--help=")) continue;
    const size_t equals = word.find('=');
    std::cout << FlagHelp(flags, about, equals == word.npos ? "" : word.substr(equals + 1));
    return kExitOk;
  }
  std::vector<std::string> words = args;
  const StatusOr<pid_t> pid = TakeServer(&words);
  if (!pid.ok()) return ReportFailure(command, pid.status(), kExitBadFlags);
  if (const Status found = FindNamedModel(&words); !found.ok()) {
    return ReportFailure(command, found, kExitBadModel);
  }
  StatusOr<std::vector<std::string>> expanded = ExpandArguments(words, flags);
  if (!expanded.ok()) return ReportFailure(command, expanded.status(), kExitBadFlags);
  words = *std::move(expanded);
  // Of vLLM's flags; what is refused is the server's to judge.
  if (const auto split = SplitCommandLine(words, {}, flags); split.ok()) {
    for (const std::string& warning : split->warnings) std::cerr << warning << std::endl;
  }
  const StatusOr<UniqueFd> server = ConnectToServer(*pid);
  if (!server.ok()) return ReportFailure(command, server.status(), kExitFailed);
  std::error_code error;
  words.insert(words.begin(), {command, std::filesystem::current_path(error).string()});
  const StatusOr<ControlEnd> end =
      Ask(*server, words, [](std::string_view line) { std::cout << line << std::endl; });
  if (!end.ok()) return ReportFailure(command, end.status(), kExitFailed);
  if (end->exit_status != kExitOk) {
    return ReportFailure(command, InternalError(end->line), end->exit_status);
  }
  std::cout << end->line << std::endl;
  return kExitOk;
}

}  // namespace

int RunSwap(const std::vector<std::string>& args) {
  EngineConfig config;
  return RunReplacement("swap", args, EngineFlags(config), kAboutSwap);
}

int RunReload(const std::vector<std::string>& args) {
  FrontendConfig config;
  return RunReplacement("reload", args, FrontendFlags(config), kAboutReload);
}

}  // namespace tandem
