#include "deploy/cli/bench/own_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "common/clock.h"
#include "common/strings.h"
#include "deploy/cli/supervisor.h"

namespace tandem {
namespace {

constexpr int kStopTimeoutMs = 30000;
constexpr size_t kLogTailBytes = 3000;

// A datagram socket that the server reports to as it would to systemd.
class NotifySocket {
 public:
  static StatusOr<std::unique_ptr<NotifySocket>> Open(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
      return InvalidArgumentError(path + " is too long a name for a socket");
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    std::unique_ptr<NotifySocket> notify(new NotifySocket);
    notify->fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (notify->fd_ < 0 ||
        bind(notify->fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      return ErrnoError(errno, "bind " + path);
    }
    return notify;
  }
  ~NotifySocket() {
    if (fd_ >= 0) close(fd_);
  }
  NotifySocket(const NotifySocket&) = delete;

  int fd() const { return fd_; }
  bool ReadsReady() const {
    char text[4096];
    ssize_t size;
    while ((size = recv(fd_, text, sizeof text, 0)) > 0) {
      const auto lines = Split(std::string_view(text, static_cast<size_t>(size)), '\n');
      if (std::find(lines.begin(), lines.end(), "READY=1") != lines.end()) return true;
    }
    return false;
  }

 private:
  NotifySocket() = default;
  int fd_ = -1;
};

}  // namespace

StatusOr<std::unique_ptr<OwnServer>> OwnServer::Start(const std::vector<std::string>& args,
                                                      double ready_timeout_s) {
  ASSIGN_OR_RETURN(std::string folder, Supervisor::MakeRuntimeDirectory());
  std::unique_ptr<OwnServer> server(new OwnServer(std::move(folder)));
  ASSIGN_OR_RETURN(const auto notify, NotifySocket::Open(server->folder_ + "/notify"));
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return InternalError("read /proc/self/exe: " + error.message());

  std::vector<std::string> argv = {self.string(), "serve"};
  argv.insert(argv.end(), args.begin(), args.end());
  argv.insert(argv.end(), {"--uds", server->folder_ + "/http"});
  const double begin = SystemClock().Monotonic();
  // SIGTERM, so that it ends its own children in order and leaves no folder behind.
  ASSIGN_OR_RETURN(server->child_,
                   ChildProcess::Start(
                       argv, {"NOTIFY_SOCKET=" + server->folder_ + "/notify"},
                       {.signal_at_our_death = SIGTERM, .output_path = server->folder_ + "/log"}));
  while (true) {
    const double left_s = begin + ready_timeout_s - SystemClock().Monotonic();
    if (left_s <= 0) return UnavailableError("the server is not ready: " + server->LogTail());
    pollfd fds[] = {{notify->fd(), POLLIN, 0}, {server->child_.pidfd(), POLLIN, 0}};
    if (poll(fds, std::size(fds), static_cast<int>(std::ceil(left_s * 1000))) < 0 &&
        errno != EINTR) {
      return ErrnoError(errno, "poll");
    }
    if (notify->ReadsReady()) break;
    if (fds[1].revents == 0) continue;
    const ChildProcess::Exit exit = server->child_.Reap();
    return UnavailableError("the server " + exit.ToString() + ": " + server->LogTail());
  }
  server->ready_after_s_ = SystemClock().Monotonic() - begin;
  return server;
}

OwnServer::~OwnServer() {
  if (child_.running()) {
    child_.Signal(SIGTERM);
    pollfd ended{child_.pidfd(), POLLIN, 0};
    if (poll(&ended, 1, kStopTimeoutMs) == 1) child_.Reap();
    child_ = ChildProcess();  // one that did not end is killed
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string OwnServer::LogTail() const {
  std::ifstream file(folder_ + "/log", std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  std::string log = std::move(text).str();
  if (log.size() > kLogTailBytes) log = log.substr(log.find('\n', log.size() - kLogTailBytes) + 1);
  return log;
}

}  // namespace tandem
