#include "deploy/cli/swap.h"

#include <filesystem>
#include <iostream>

#include "common/exit_status.h"
#include "common/strings.h"
#include "deploy/cli/control_socket.h"
#include "engine_core/flags/engine_config.h"

namespace tandem {
namespace {

constexpr std::string_view kAbout =
    "tandem swap [--server PID] [--model FOLDER] [flags]: replace the engine core of a running\n"
    "`tandem serve` by one with other flags, other weights of the same tokenizer, or a new "
    "program\n"
    "at the same path. No request is lost. Flags that are not given stay as they are.";

int Refuse(const Status& status, int exit_code) {
  std::cerr << "tandem swap: " << status.message() << std::endl;
  return exit_code;
}

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

}  // namespace

int RunSwap(const std::vector<std::string>& args) {
  for (const std::string& word : args) {
    if (word != "-h" && word != "--help" && !word.starts_with("--help=")) continue;
    EngineConfig config;
    const size_t equals = word.find('=');
    std::cout << FlagHelp(EngineFlags(config), kAbout,
                          equals == word.npos ? "" : word.substr(equals + 1));
    return kExitOk;
  }
  std::vector<std::string> words = args;
  const StatusOr<pid_t> pid = TakeServer(&words);
  if (!pid.ok()) return Refuse(pid.status(), kExitBadFlags);
  const StatusOr<UniqueFd> server = ConnectToServer(*pid);
  if (!server.ok()) return Refuse(server.status(), kExitFailed);
  std::error_code error;
  words.insert(words.begin(), {"swap", std::filesystem::current_path(error).string()});
  const StatusOr<ControlEnd> end =
      Ask(*server, words, [](std::string_view line) { std::cout << line << std::endl; });
  if (!end.ok()) return Refuse(end.status(), kExitFailed);
  if (end->exit_status != kExitOk) return Refuse(InternalError(end->line), end->exit_status);
  std::cout << end->line << std::endl;
  return kExitOk;
}

}  // namespace tandem
