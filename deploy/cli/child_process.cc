#include "deploy/cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace tandem {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The parent's environment with `extra` replacing variables of the same name.
std::vector<std::string> MergedEnvironment(const std::vector<std::string>& extra) {
  std::vector<std::string> merged = extra;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name =
        std::string_view(*entry).substr(0, std::string_view(*entry).find('='));
    bool replaced = false;
    for (const std::string& item : extra) replaced |= item.starts_with(std::string(name) + "=");
    if (!replaced) merged.emplace_back(*entry);
  }
  return merged;
}

// Runs between fork and exec: only async-signal-safe calls.
[[noreturn]] void BecomeChild(char* const* argv, char* const* environment, pid_t parent,
                              const ChildProcess::Options& options, int output_fd, int error_fd) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, options.signal_at_our_death);
  if (options.stdout_to_stderr) dup2(STDERR_FILENO, STDOUT_FILENO);
  if (output_fd >= 0) {
    dup2(output_fd, STDOUT_FILENO);
    dup2(output_fd, STDERR_FILENO);
  }
  sigset_t blocked;
  sigemptyset(&blocked);
  if (options.reads_signals) {
    for (const int number : {SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&blocked, number);
  }
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
  if (getppid() == parent) execve(argv[0], argv, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(error_fd, &error, sizeof error);
  _exit(127);
}

}  // namespace

StatusOr<std::string> ProgramBeside(std::string_view name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return InternalError("read /proc/self/exe: " + error.message());
  return (self.parent_path() / name).string();
}

bool ChildProcess::Exit::clean() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

int ChildProcess::Exit::code() const {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string ChildProcess::Exit::ToString() const {
  if (WIFEXITED(status)) return "exited with status " + std::to_string(WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
}

StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& argv,
                                           const std::vector<std::string>& environment,
                                           const Options& options) {
  const std::vector<std::string> merged = MergedEnvironment(environment);
  const std::vector<char*> arguments = Pointers(argv), variables = Pointers(merged);
  int output_fd = -1;
  if (!options.output_path.empty()) {
    output_fd = open(options.output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (output_fd < 0) return ErrnoError(errno, "open " + options.output_path);
  }
  int error_pipe[2];  // closed by a successful exec, else carries its errno
  if (pipe2(error_pipe, O_CLOEXEC) != 0) {
    const int pipe_error = errno;
    if (output_fd >= 0) close(output_fd);
    return ErrnoError(pipe_error, "pipe");
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeChild(arguments.data(), variables.data(), parent, options, output_fd, error_pipe[1]);
  }
  const int fork_error = errno;
  if (output_fd >= 0) close(output_fd);
  close(error_pipe[1]);
  int exec_error = 0;
  const ssize_t got = pid < 0 ? 0 : read(error_pipe[0], &exec_error, sizeof exec_error);
  close(error_pipe[0]);
  if (pid < 0) {
    return ErrnoError(fork_error, fork_error == EAGAIN
                                      ? "start " + argv[0] + " (no more processes: ulimit -u)"
                                      : "start " + argv[0]);
  }
  ChildProcess child;
  child.pid_ = pid;
  child.pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (got == sizeof exec_error) {
    child.Reap();
    return ErrnoError(exec_error, "run " + argv[0]);
  }
  if (child.pidfd_ < 0) return ErrnoError(errno, "pidfd_open");
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pidfd_(std::exchange(other.pidfd_, -1)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (!running()) return;
  Signal(SIGKILL);
  Reap();
}

void ChildProcess::Signal(int signal_number) const {
  if (running()) kill(pid_, signal_number);
}

ChildProcess::Exit ChildProcess::Reap() {
  CHECK(running());
  Exit exit;
  while (waitpid(pid_, &exit.status, 0) < 0 && errno == EINTR) {
  }
  if (pidfd_ >= 0) close(pidfd_);
  pid_ = pidfd_ = -1;
  return exit;
}

}  // namespace tandem
