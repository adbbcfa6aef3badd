#include "frontend/next_process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "common/sd_notify.h"
#include "common/strings.h"

namespace tandem {
namespace {

constexpr std::string_view kTakeOver = "--take-over";

// Where the file of this program was when it was started.
StatusOr<std::string> OwnPath() {
  std::error_code error;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return InternalError("read /proc/self/exe: " + error.message());
  constexpr std::string_view kDeleted = " (deleted)";  // another file has its name, or none
  if (path.ends_with(kDeleted)) path.resize(path.size() - kDeleted.size());
  return path;
}

// Without what was meant for this process alone, or was overwritten.
std::vector<std::string> Environment(const FrontendConfig& config) {
  constexpr std::string_view kOwn[] = {"LISTEN_PID=",   "LISTEN_FDS=",     "LISTEN_FDNAMES=",
                                       "WATCHDOG_PID=", "TANDEM_API_KEY=", "VLLM_API_KEY="};
  std::vector<std::string> environment = KeyEnvironment(config);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool is_own = std::any_of(std::begin(kOwn), std::end(kOwn),
                                    [&](std::string_view name) { return text.starts_with(name); });
    if (!is_own) environment.emplace_back(text);
  }
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// As a process that a shell starts: this one's threads block the signals that a shard reads.
Status PrepareSignals(posix_spawnattr_t* attributes) {
  sigset_t none;
  sigemptyset(&none);
  int error = ::posix_spawnattr_setsigmask(attributes, &none);
  if (error == 0) error = ::posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK);
  return error == 0 ? OkStatus() : ErrnoError(error, "posix_spawn");
}

}  // namespace

std::string NextProcess::Reap() {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) return "exited with status " + std::to_string(WEXITSTATUS(status));
  return std::string("was killed by signal ") + std::to_string(WTERMSIG(status));
}

StatusOr<NextProcess> StartNextProcess(const std::vector<std::string>& words,
                                       const FrontendConfig& config) {
  FrontendConfig ignored;
  std::vector<std::string> argv = WithoutSecrets(FrontendFlags(ignored), words);
  ASSIGN_OR_RETURN(std::string path, OwnPath());
  argv.insert(argv.begin(), path);
  if (std::find(argv.begin(), argv.end(), kTakeOver) == argv.end()) argv.emplace_back(kTakeOver);
  std::vector<std::string> environment = Environment(config);

  posix_spawnattr_t attributes;
  if (::posix_spawnattr_init(&attributes) != 0) return InternalError("posix_spawnattr_init");
  NextProcess next;
  Status status = PrepareSignals(&attributes);
  if (status.ok()) {
    const int error = ::posix_spawn(&next.pid, path.c_str(), nullptr, &attributes,
                                    Pointers(argv).data(), Pointers(environment).data());
    if (error != 0) status = ErrnoError(error, "run " + path);
  }
  ::posix_spawnattr_destroy(&attributes);
  RETURN_IF_ERROR(status);
  next.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, next.pid, 0)));
  if (!next.pidfd) return ErrnoError(errno, "pidfd_open");
  return next;
}

bool IsSupervised() {
  const char* supervisor = std::getenv(kSupervisorVariable);
  return supervisor != nullptr && ParseNumber<pid_t>(supervisor) == ::getppid();
}

}  // namespace tandem
