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
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/futex.h"
#include "common/log.h"
#include "common/mailbox.h"
#include "common/strings.h"
#include "common/unique_fd.h"
#include "common/unix_address.h"

namespace tandem {
namespace {

// EAGAIN is the error where flags have MSG_DONTWAIT and there is no room.
int SendDatagram(const sockaddr_un& address, socklen_t size, std::string_view lines, int flags) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  while (sendto(fd.get(), lines.data(), lines.size(), MSG_NOSIGNAL | flags, AsSockaddr(address),
                size) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// 0 too where nobody wants to know.
StatusOr<int> Send(std::string_view lines, int flags) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || *path == '\0') return 0;
  StatusOr<sockaddr_un> address = UnixAddress(path);
  if (!address.ok() || (path[0] != '/' && path[0] != '@')) {
    return InvalidArgumentError("NOTIFY_SOCKET is '" + std::string(path) +
                                "', must be a path or @name");
  }
  if (path[0] == '@') address->sun_path[0] = '\0';  // abstract name
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  const int error = SendDatagram(*address, size, lines, flags);
  if (error == 0 || error == EAGAIN) return error;
  return ErrnoError(error, std::string("send to NOTIFY_SOCKET ") + path);
}

// What found no room, with a thread that waits for it. Made when it is first needed; it lives as
// long as the process, because its thread may wait for ever.
class Backlog {
 public:
  static Backlog* Get() {
    static Backlog* const backlog = new Backlog;
    return backlog;
  }
  static bool IsEmpty() { return num_waiting_ == 0; }

  void Push(std::string_view lines) {
    ++num_waiting_;
    lines_.Push(std::string(lines));
  }

 private:
  Backlog() {
    std::thread([this] { Run(); }).detach();
    std::atexit([] { WaitUntilSent(); });
  }

  void Run() {
    SetThreadName("notify");
    std::vector<std::string> texts;
    while (true) {
      lines_.Wait();
      lines_.Drain(&texts);
      for (const std::string& text : texts) {
        const StatusOr<int> sent = Send(text, 0);
        if (!sent.ok()) LOG_WARNING << "cannot notify systemd: " << sent.status().message();
        --num_waiting_;
        FutexWakeAll(num_waiting_);
      }
    }
  }

  static void WaitUntilSent() {
    const SystemClock clock;
    const double deadline = clock.Monotonic() + kLastSeconds;
    while (clock.Monotonic() < deadline) {
      const uint32_t waiting = num_waiting_;
      if (waiting == 0) return;
      FutexWait(num_waiting_, waiting, static_cast<int>(kLastSeconds * 1e3));
    }
  }

  // A unit whose new main process is not known ends with the old one.
  static constexpr double kLastSeconds = 10;
  static inline FutexWord num_waiting_{0};
  Mailbox<std::string> lines_;
};

}  // namespace

Status SdNotify(std::string_view lines) {
  if (Backlog::IsEmpty()) {
    const StatusOr<int> sent = Send(lines, MSG_DONTWAIT);
    if (!sent.ok() || *sent == 0) return sent.status();
  }
  Backlog::Get()->Push(lines);
  return OkStatus();
}

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
