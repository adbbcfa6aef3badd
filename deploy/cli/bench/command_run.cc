#include "deploy/cli/bench/command_run.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <random>

#include "common/clock.h"
#include "common/read_file.h"
#include "common/unique_fd.h"
#include "deploy/cli/bench/hangup.h"

namespace tandem {
namespace {

constexpr double kEndGraceSeconds = 15;
constexpr double kProbeSeconds = 2;
constexpr int kPollMs = 50;
constexpr size_t kLogTailBytes = 2000;
constexpr int64_t kMaxLogBytes = int64_t{1} << 30;
constexpr std::string_view kHealthRequest =
    "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

std::atomic<int> num_stop_signals{0};  // lock-free, so a signal handler may count in it
struct sigaction old_int, old_term, old_hup;

void OnStopSignal(int) { num_stop_signals.fetch_add(1, std::memory_order_relaxed); }

// True once the child has ended; false after a short wait or a signal.
bool EndedWithin(const ChildProcess& child, int timeout_ms) {
  pollfd wait{.fd = child.pidfd(), .events = POLLIN, .revents = 0};
  return poll(&wait, 1, timeout_ms) > 0;
}

// `env` finds the command in PATH and executes it.
StatusOr<ChildProcess> StartCommand(const CommandWords& command, const std::string& log_path) {
  CommandWords argv = {"/usr/bin/env"};
  argv.insert(argv.end(), command.begin(), command.end());
  ChildProcess::Options options;
  options.output_path = log_path;
  return ChildProcess::Start(argv, {}, options);
}

// Ends the child's group. The leader stays a zombie until it is reaped, so its number cannot belong
// to another process.
ChildProcess::Exit EndGroup(ChildProcess& child) {
  const SystemClock clock;
  const double kill_at = clock.Monotonic() + kEndGraceSeconds;
  const int signals_before = num_stop_signals.load();
  kill(-child.pid(), SIGTERM);
  while (clock.Monotonic() < kill_at && num_stop_signals.load() <= signals_before + 1) {
    if (EndedWithin(child, kPollMs)) break;
  }
  kill(-child.pid(), SIGKILL);
  return child.Reap();
}

std::string LogTail(const std::string& path) {
  auto log = ReadFile(path, kMaxLogBytes);
  if (!log.ok()) return "";
  std::string text = *std::move(log);
  if (text.size() > kLogTailBytes) text.erase(0, text.size() - kLogTailBytes);
  while (text.ends_with('\n')) text.pop_back();
  return text.empty() ? "" : "; the end of " + path + ":\n" + text;
}

struct HostPort {
  std::string host, port;
};

StatusOr<HostPort> ParseUrl(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  std::string_view rest = url;
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  rest = rest.substr(0, rest.find('/'));
  const size_t colon = rest.rfind(':');
  if (!url.starts_with(kScheme) || colon == rest.npos || colon == 0) {
    return InvalidArgumentError("the server's URL is '" + std::string(url) +
                                "', must be like http://127.0.0.1:8000");
  }
  HostPort parsed{std::string(rest.substr(0, colon)), std::string(rest.substr(colon + 1))};
  if (parsed.host.starts_with('[') && parsed.host.ends_with(']')) {
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  }
  return parsed;
}

// Whether /health returns 200 now. A server that accepts and stays silent costs kProbeSeconds.
bool IsHealthy(const HostPort& at) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(at.host.c_str(), at.port.c_str(), &hints, &found) != 0) return false;
  const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
  const timeval limit{.tv_sec = static_cast<time_t>(kProbeSeconds), .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  std::string head;
  if (connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
      send(fd, kHealthRequest.data(), kHealthRequest.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(kHealthRequest.size())) {
    char piece[256];
    ssize_t got = 0;
    while (head.size() < 16 && (got = recv(fd, piece, sizeof piece, 0)) > 0) {
      head.append(piece, static_cast<size_t>(got));
    }
  }
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return head.starts_with("HTTP/1.") && head.substr(8, 4) == " 200";
}

}  // namespace

StopSignals::StopSignals() {
  num_stop_signals = 0;
  struct sigaction action {};
  action.sa_handler = OnStopSignal;
  sigaction(SIGINT, &action, &old_int);
  sigaction(SIGTERM, &action, &old_term);
  sigaction(SIGHUP, IsHangupIgnored() ? nullptr : &action, &old_hup);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &old_int, nullptr);
  sigaction(SIGTERM, &old_term, nullptr);
  sigaction(SIGHUP, &old_hup, nullptr);
  num_stop_signals = 0;
}

bool StopSignals::Seen() { return num_stop_signals.load() > 0; }

Status RunCommand(const CommandWords& command, const std::string& log_path, double timeout_s) {
  const SystemClock clock;
  const double deadline = clock.Monotonic() + timeout_s;
  ASSIGN_OR_RETURN(ChildProcess child, StartCommand(command, log_path));
  while (!EndedWithin(child, kPollMs)) {
    const bool late = clock.Monotonic() > deadline;
    if (!late && !StopSignals::Seen()) continue;
    EndGroup(child);
    if (!late) return CancelledError("interrupted");
    return Status(StatusCode::kDeadlineExceeded, "no end in time: " + ShellCommand(command));
  }
  const ChildProcess::Exit exit = EndGroup(child);
  if (exit.clean()) return OkStatus();
  return UnavailableError(ShellCommand(command) + " " + exit.ToString() + LogTail(log_path));
}

std::string BenchUrl(const CommandWords& bench_command) {
  if (const auto url = FlagValue(bench_command, "base-url")) return *url;
  return "http://" + FlagValue(bench_command, "host").value_or("127.0.0.1") + ":" +
         FlagValue(bench_command, "port").value_or("8000");
}

StatusOr<std::unique_ptr<CommandServer>> CommandServer::Start(const CommandWords& command,
                                                              const std::string& url,
                                                              const std::string& log_path,
                                                              double ready_timeout_s) {
  const SystemClock clock;
  const double deadline = clock.Monotonic() + ready_timeout_s;
  ASSIGN_OR_RETURN(const HostPort at, ParseUrl(url));
  if (IsHealthy(at)) {
    return Status(StatusCode::kAlreadyExists, "a server is already running at " + url);
  }
  ASSIGN_OR_RETURN(ChildProcess child, StartCommand(command, log_path));
  std::unique_ptr<CommandServer> server(new CommandServer(std::move(child)));
  while (!EndedWithin(server->child_, kPollMs)) {
    if (IsHealthy(at)) return server;
    if (StopSignals::Seen()) return CancelledError("interrupted");
    if (clock.Monotonic() > deadline) {
      return Status(StatusCode::kDeadlineExceeded,
                    "the server was not ready in time" + LogTail(log_path));
    }
  }
  const ChildProcess::Exit exit = EndGroup(server->child_);
  return UnavailableError("the server " + exit.ToString() + " before it was ready" +
                          LogTail(log_path));
}

CommandServer::~CommandServer() {
  if (child_.running()) EndGroup(child_);
}

StatusOr<int> FreePort() {
  constexpr int kFirst = 10000, kLeastEnd = 20000, kMaxTries = 100;
  int end = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> end;
  std::random_device random;
  std::uniform_int_distribution<int> ports(kFirst, std::max(end, kLeastEnd) - 1);
  int error = 0;
  for (int i = 0; i < kMaxTries; ++i) {
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int port = ports(random);
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (fd && bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      return port;
    }
    error = errno;
  }
  return ErrnoError(error, "find a free port");
}

}  // namespace tandem
