#include "deploy/cli/bench/own_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <string_view>

#include "common/clock.h"
#include "common/read_file.h"
#include "common/strings.h"
#include "common/unix_address.h"
#include "deploy/cli/bench/hangup.h"

namespace tandem {
namespace {

constexpr int kStopTimeoutMs = 30000;
constexpr int kSignalExitBase = 128;  // as a shell reports it
constexpr size_t kLogTailBytes = 3000;
constexpr int64_t kMaxLogBytes = int64_t{1} << 30;

// A datagram socket that the server reports to as it would to systemd.
class NotifySocket {
 public:
  static StatusOr<std::unique_ptr<NotifySocket>> Open(const std::string& path) {
    ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
    std::unique_ptr<NotifySocket> notify(new NotifySocket);
    notify->fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (notify->fd_ < 0 || bind(notify->fd_, AsSockaddr(address), sizeof address) != 0) {
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

// The lines of errors, each with the lines without a level that follow it.
std::string ErrorsOf(const std::string& log) {
  std::string errors;
  bool is_error = false;
  for (const std::string_view line : Split(log, '\n')) {
    const size_t level = line.starts_with('(') ? line.find(") ") : std::string_view::npos;
    if (level != std::string_view::npos) {
      const std::string_view rest = line.substr(level + 2);
      is_error = rest.starts_with("ERROR ") || rest.starts_with("FATAL ");
    }
    if (is_error && !line.empty()) errors.append(line).push_back('\n');
  }
  return errors;
}

}  // namespace

StatusOr<std::unique_ptr<OwnServer>> OwnServer::Start(const std::vector<std::string>& args,
                                                      double ready_timeout_s) {
  ASSIGN_OR_RETURN(RuntimeDirectory folder, RuntimeDirectory::Make());
  std::unique_ptr<OwnServer> server(new OwnServer(std::move(folder)));
  ASSIGN_OR_RETURN(const auto notify, NotifySocket::Open(server->folder_.path() + "/notify"));
  ASSIGN_OR_RETURN(const std::string tandem, ProgramBeside("tandem"));
  std::vector<std::string> argv = {tandem, "serve"};
  argv.insert(argv.end(), args.begin(), args.end());
  argv.insert(argv.end(), {"--uds", server->folder_.path() + "/http"});
  const double begin = SystemClock().Monotonic();
  // SIGTERM, so that it ends its own children in order and removes its folder.
  ASSIGN_OR_RETURN(
      server->child_,
      ChildProcess::Start(
          argv, {"NOTIFY_SOCKET=" + server->folder_.path() + "/notify"},
          {.signal_at_our_death = SIGTERM, .output_path = server->folder_.path() + "/log"}));
  RETURN_IF_ERROR(server->WatchSignals());
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
    server->StopWatching();  // it might signal a process that has been reaped
    const ChildProcess::Exit exit = server->child_.Reap();
    return UnavailableError("the server " + exit.ToString() + ": " + server->LogTail());
  }
  return server;
}

OwnServer::~OwnServer() {
  StopWatching();
  for (const int fd : {signal_fd_, stop_fd_}) {
    if (fd >= 0) close(fd);
  }
  StopChild();
  child_ = ChildProcess();  // one that did not end is killed
}

void OwnServer::StopChild() {
  if (!child_.running()) return;
  child_.Signal(SIGTERM);
  pollfd ended{child_.pidfd(), POLLIN, 0};
  poll(&ended, 1, kStopTimeoutMs);
}

Status OwnServer::WatchSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  if (!IsHangupIgnored()) sigaddset(&signals, SIGHUP);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (signal_fd_ < 0 || stop_fd_ < 0) return ErrnoError(errno, "signalfd");
  pthread_sigmask(SIG_BLOCK, &signals, &mask_before_);
  signal_thread_ = std::thread([this] { EndAtSignal(); });
  return OkStatus();
}

void OwnServer::StopWatching() {
  if (!signal_thread_.joinable()) return;
  eventfd_write(stop_fd_, 1);
  signal_thread_.join();
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

// The process ends as the signal demands, whatever its other threads wait for.
void OwnServer::EndAtSignal() {
  pollfd fds[] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  while (poll(fds, std::size(fds), -1) < 0 && errno == EINTR) {
  }
  signalfd_siginfo info;
  if (fds[0].revents == 0 || read(signal_fd_, &info, sizeof info) != sizeof info) return;
  is_ending_ = true;
  StopChild();
  folder_.Remove();
  _exit(kSignalExitBase + static_cast<int>(info.ssi_signo));
}

std::string OwnServer::LogTail() const {
  auto text = ReadFile(folder_.path() + "/log", kMaxLogBytes);
  if (!text.ok()) return "";
  // What is logged between an error and the end of both processes is of no use here.
  std::string log = ErrorsOf(*text);
  if (log.empty()) log = *std::move(text);
  if (log.size() > kLogTailBytes) log = log.substr(log.find('\n', log.size() - kLogTailBytes) + 1);
  return log;
}

}  // namespace tandem
