#include "common/forking/helper_process.h"

#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "common/packets.h"
#include "common/spawn.h"

namespace tandem {

std::string HelperProgramPath(const std::string& name) {
  return (std::filesystem::path(OwnProgramPath()).parent_path() / name).string();
}

StatusOr<HelperProcess> HelperProcess::Start(const std::vector<std::string>& argv,
                                             std::span<const int> fds) {
  ASSIGN_OR_RETURN(auto sockets, MakePacketSockets());
  std::vector<int> all = {sockets.second.get()};
  all.insert(all.end(), fds.begin(), fds.end());
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(argv, all));
  return HelperProcess(pid, std::move(sockets.first));
}

HelperProcess::HelperProcess(HelperProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), control_(std::move(other.control_)) {}

HelperProcess& HelperProcess::operator=(HelperProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(control_, other.control_);
  return *this;
}

HelperProcess::~HelperProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace tandem
