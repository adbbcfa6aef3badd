#include "common/sd_notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "common/strings.h"

namespace tandem {
namespace {

Status Send(std::string_view lines, int flags) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || *path == '\0') return OkStatus();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(path);
  if ((path[0] != '/' && path[0] != '@') || length >= sizeof address.sun_path) {
    return InvalidArgumentError("NOTIFY_SOCKET is '" + std::string(path) +
                                "', must be a path or @name");
  }
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // abstract name

  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return ErrnoError(errno, "notify socket");
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  const ssize_t sent = sendto(fd, lines.data(), lines.size(), MSG_NOSIGNAL | flags,
                              reinterpret_cast<const sockaddr*>(&address), size);
  const int error = errno;
  close(fd);
  if (sent < 0) return ErrnoError(error, std::string("send to NOTIFY_SOCKET ") + path);
  return OkStatus();
}

}  // namespace

Status SdNotify(std::string_view lines) { return Send(lines, 0); }

void NotifyFailure(std::string_view why) {
  std::string line = "STATUS=" + std::string(why);
  std::replace(line.begin(), line.end(), '\n', ' ');
  (void)SdNotify(line);
}

void AskForStartTime() { (void)Send(kMoreStartTime, MSG_DONTWAIT); }

std::optional<double> WatchdogSeconds() {
  const char* usec = std::getenv("WATCHDOG_USEC");
  const char* pid = std::getenv("WATCHDOG_PID");
  if (usec == nullptr) return std::nullopt;
  // Meant for another process, whose child we are.
  if (pid != nullptr && *pid != '\0' && ParseNumber<int64_t>(pid) != int64_t{getpid()})
    return std::nullopt;
  const std::optional<int64_t> limit = ParseNumber<int64_t>(usec);
  if (!limit || *limit <= 0) return std::nullopt;
  return static_cast<double>(*limit) * 1e-6;
}

void SendBeat() { (void)Send("WATCHDOG=1", MSG_DONTWAIT); }

}  // namespace tandem
