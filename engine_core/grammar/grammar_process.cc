#include "engine_core/grammar/grammar_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "common/packets.h"

namespace tandem {
namespace {

// Numbers that the program knows (grammar/compiler/main.cc).
constexpr int kControlInChild = 3;
constexpr int kMasksInChild = 4;

// Above the numbers that the child gives them, so that one dup2 does not close the other's source.
StatusOr<UniqueFd> MovedUp(int fd) {
  UniqueFd moved(fcntl(fd, F_DUPFD_CLOEXEC, 10));
  if (!moved) return ErrnoError(errno, "fcntl");
  return moved;
}

// Signals as a process has them at its start: this one blocks some for all its threads.
void UseDefaultSignals(posix_spawnattr_t* attributes) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(attributes, &none);
  posix_spawnattr_setsigdefault(attributes, &all);
  posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

}  // namespace

std::string GrammarProgramPath() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  return (own.parent_path() / "tandem-grammar").string();
}

StatusOr<GrammarProcess> GrammarProcess::Start(const std::string& program,
                                               const std::string& model_folder, int32_t vocab_size,
                                               int masks_file) {
  ASSIGN_OR_RETURN(auto sockets, MakePacketSockets());
  ASSIGN_OR_RETURN(const UniqueFd control, MovedUp(sockets.second.get()));
  ASSIGN_OR_RETURN(const UniqueFd masks, MovedUp(masks_file));
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, control.get(), kControlInChild);
  posix_spawn_file_actions_adddup2(&actions, masks.get(), kMasksInChild);
  UseDefaultSignals(&attributes);
  std::array<std::string, 3> words = {program, model_folder, std::to_string(vocab_size)};
  std::array<char*, 4> argv = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return ErrnoError(failed, program);
  return GrammarProcess(pid, std::move(sockets.first));
}

GrammarProcess::GrammarProcess(GrammarProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), control_(std::move(other.control_)) {}

GrammarProcess& GrammarProcess::operator=(GrammarProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(control_, other.control_);
  return *this;
}

GrammarProcess::~GrammarProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace tandem
