#include "engine_core/grammar/grammar_process.h"

#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "common/packets.h"
#include "common/spawn.h"

namespace tandem {

std::string GrammarProgramPath() {
  return (std::filesystem::path(OwnProgramPath()).parent_path() / "tandem-grammar").string();
}

StatusOr<GrammarProcess> GrammarProcess::Start(const std::string& program,
                                               const std::string& model_folder, int32_t vocab_size,
                                               int masks_file) {
  ASSIGN_OR_RETURN(auto sockets, MakePacketSockets());
  // In the order that the program knows (grammar/compiler/main.cc).
  const int fds[] = {sockets.second.get(), masks_file};
  ASSIGN_OR_RETURN(const pid_t pid,
                   Spawn({program, model_folder, std::to_string(vocab_size)}, fds));
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
