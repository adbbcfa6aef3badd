#include "deploy/cli/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/exit_status.h"
#include "common/log.h"
#include "common/read_file.h"
#include "common/sd_notify.h"
#include "common/strings.h"
#include "common/unix_address.h"

namespace tandem {
namespace {

// timeout(1) signals its command and then the group of both; others pass on a Ctrl-C that the
// terminal has sent to all.
constexpr double kOneEndS = 0.1;

// A terminal that was closed is none.
bool HasTerminal() {
  const int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

// A process that a debugger holds.
bool IsTraced(pid_t pid) {
  constexpr int64_t kMaxBytes = 1 << 16;
  const auto status = ReadFile("/proc/" + std::to_string(pid) + "/status", kMaxBytes);
  return status.ok() && status->find("TracerPid:\t0\n") == std::string::npos;
}

}  // namespace

Supervisor::Supervisor(RuntimeDirectory runtime_directory, std::optional<Program> frontend,
                       std::vector<Program> engine_cores, ChangedProgram changed_frontend,
                       ChangedProgram changed_engine, Timeouts timeouts)
    : runtime_directory_(std::move(runtime_directory)),
      timeouts_(timeouts),
      had_terminal_(HasTerminal()),
      changed_frontend_(std::move(changed_frontend)),
      changed_engine_(std::move(changed_engine)) {
  const auto add = [this](Program program, bool is_frontend) {
    members_.push_back({.program = std::move(program),
                        .child = {},
                        .is_frontend = is_frontend,
                        .beats = BeatWatch(timeouts_.hang_s)});
  };
  if (frontend) add(*std::move(frontend), true);
  for (Program& engine_core : engine_cores) add(std::move(engine_core), false);
}

Supervisor::~Supervisor() {
  for (Member* member : Members()) member->child = ChildProcess();
  for (const int fd : {signal_fd_, notify_fd_}) {
    if (fd >= 0) close(fd);
  }
}

StatusOr<int> Supervisor::Run() {
  started_at_ = clock_.Monotonic();
  RETURN_IF_ERROR(OpenDescriptors());
  // The frontend last, because loading takes longest.
  for (auto member = members_.rbegin(); member != members_.rend(); ++member) {
    RETURN_IF_ERROR(StartMember(*member));
  }
  while (!exit_code_ || AnyRuns()) {
    // A negative descriptor is skipped by poll.
    std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0},
                               {notify_fd_, POLLIN, 0},
                               {control_.fd(), POLLIN, 0},
                               {next_ && next_->asker ? next_->asker->fd() : -1, POLLIN, 0}};
    std::vector<pid_t> pids;
    for (const Member* member : Members()) {
      fds.push_back({member->child.pidfd(), POLLIN, 0});
      pids.push_back(member->child.pid());
    }
    if (poll(fds.data(), fds.size(), PollTimeoutMs()) < 0 && errno != EINTR)
      return ErrnoError(errno, "poll");
    if (fds[0].revents != 0) OnSignal();
    if (fds[1].revents != 0) OnNotify();
    if (fds[3].revents != 0 && next_) {
      GiveUpReplacement("the command that asked for it has ended");
      next_->asker.reset();
    }
    if (fds[2].revents != 0) OnControl();
    for (size_t i = 0; i < pids.size(); ++i) {
      if (fds[i + 4].revents != 0) OnExit(pids[i]);
    }
    ReapOrphans();
    LookForBeats();
    if (next_ && next_->give_up_at && clock_.Monotonic() >= *next_->give_up_at) {
      next_->give_up_at.reset();
      GiveUpReplacement(
          "the frontend has not let the one before go within twice --engine-hang-timeout");
    }
    StartDueMembers();
    if (kill_at_ && clock_.Monotonic() >= *kill_at_) {
      kill_at_.reset();
      LOG_WARNING << "[shutdown] not stopped within " << timeouts_.stop_s
                  << " s: killing what is left";
      KillAll();
    }
  }
  return *exit_code_;
}

Status Supervisor::OpenDescriptors() {
  ::signal(SIGCHLD, SIG_DFL);  // ignored, it takes the children's exit statuses with it
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD})
    sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd_ < 0) return ErrnoError(errno, "signalfd");

  const std::string path = runtime_directory_.path() + "/notify";
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  notify_fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (notify_fd_ < 0) return ErrnoError(errno, "notify socket");
  const int on = 1;
  if (setsockopt(notify_fd_, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      bind(notify_fd_, AsSockaddr(address), sizeof address) != 0) {
    return ErrnoError(errno, "bind " + path);
  }
  return control_.Listen(runtime_directory_.path());
}

std::vector<Supervisor::Member*> Supervisor::Members() {
  std::vector<Member*> members;
  for (Member& member : members_) members.push_back(&member);
  if (next_) members.push_back(&next_->member);
  for (Replacement& each : leaving_) members.push_back(&each.member);
  return members;
}

Supervisor::Member* Supervisor::MemberOf(pid_t pid) {
  for (Member* member : Members()) {
    if (member->child.running() && member->child.pid() == pid) return member;
  }
  return nullptr;
}

bool Supervisor::AnyRuns() {
  const std::vector<Member*> members = Members();
  return std::any_of(members.begin(), members.end(),
                     [](const Member* member) { return member->child.running(); });
}

Status Supervisor::StartMember(Member& member) {
  member.start_again_at.reset();
  member.is_ready = false;
  std::vector<std::string> environment = member.program.environment;
  environment.push_back("NOTIFY_SOCKET=" + runtime_directory_.path() + "/notify");
  // In place of those that systemd may have given us.
  environment.push_back("WATCHDOG_PID=");
  environment.push_back(std::string(kSupervisorVariable) + "=" + std::to_string(getpid()));
  environment.push_back("WATCHDOG_USEC=" +
                        std::to_string(static_cast<int64_t>(timeouts_.hang_s * 1e6)));
  ASSIGN_OR_RETURN(member.child,
                   ChildProcess::Start(member.program.argv, environment, {.reads_signals = true}));
  LOG_DEBUG << "started " << member.program.name << ", pid " << member.child.pid();
  return OkStatus();
}

void Supervisor::StartDueMembers() {
  for (Member& member : members_) {
    if (exit_code_ || !member.start_again_at || clock_.Monotonic() < *member.start_again_at)
      continue;
    if (const Status status = StartMember(member); !status.ok()) {
      LOG_ERROR << status.message();
      PlanRestart(member);  // the host may have no process or memory left for a moment
    }
  }
}

int Supervisor::PollTimeoutMs() {
  std::optional<double> next = kill_at_;
  const auto consider = [&next](std::optional<double> at) {
    if (at && (!next || *at < *next)) next = at;
  };
  if (next_) consider(next_->give_up_at);
  for (const Member* member : Members()) {
    consider(member->start_again_at);
    consider(member->beats.next_look());
  }
  if (!next) return -1;
  return static_cast<int>(std::ceil(std::max(0.0, *next - clock_.Monotonic()) * 1000));
}

void Supervisor::LookForBeats() {
  for (Member* member : Members()) {
    const std::optional<double> next = member->beats.next_look();
    if (!next || clock_.Monotonic() < *next) continue;
    if (!member->beats.Look(clock_.Monotonic()) || IsTraced(member->child.pid())) continue;
    LOG_ERROR << member->program.name << " has given no sign of life for " << timeouts_.hang_s
              << " s: killing it";
    member->beats.Stop();
    member->child.Signal(SIGKILL);
  }
}

void Supervisor::OnSignal() {
  const double now = clock_.Monotonic();
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof info) == sizeof info) {
    OnSignal(static_cast<int>(info.ssi_signo), now);
  }
}

void Supervisor::OnSignal(int signal, double now) {
  const bool is_end = signal == SIGTERM || signal == SIGINT ||
                      (signal == SIGHUP && had_terminal_ && !HasTerminal());
  if (signal == SIGCHLD) {
    // Only wakes: members have descriptors of their own, and orphans are looked for in each round.
  } else if (signal == SIGUSR2) {
    BeginReplacement(true, std::nullopt);
  } else if (!is_end) {
    for (const Member* member : Members()) member->child.Signal(signal);
  } else if (end_asked_at_ && now - *end_asked_at_ < kOneEndS) {
    LOG_DEBUG << "[shutdown] signal " << signal << ", too";
  } else if (exit_code_) {
    LOG_WARNING << "second signal: killing all processes";
    KillAll();
  } else {
    LOG_INFO << "[shutdown] signal " << signal;
    end_asked_at_ = now;
    Stop(kExitOk);
  }
}

void Supervisor::OnNotify() {
  char text[4096];
  while (true) {
    iovec part{text, sizeof text};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t size = recvmsg(notify_fd_, &message, 0);
    if (size < 0) return;
    ucred sender{};
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_type == SCM_CREDENTIALS)
        std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
    }
    for (const auto line : Split(std::string_view(text, static_cast<size_t>(size)), '\n')) {
      // A notice may change which member has the process.
      if (Member* const member = MemberOf(sender.pid)) OnNotice(*member, line);
    }
  }
}

void Supervisor::OnNotice(Member& member, std::string_view line) {
  constexpr std::string_view kStatus = "STATUS=";
  if (line == "WATCHDOG=1") member.beats.OnBeat();
  if (line.starts_with(kStatus)) member.status = line.substr(kStatus.size());
  if (line == kMoreStartTime && !ready_) AskForStartTime();
  if (line == kReloadNotice && &member == &members_[0]) BeginReplacement(true, std::nullopt);
  if (line == kLeavingNotice && is_to_follow(member)) return CompleteReplacement();
  if (line == "READY=1" && !member.is_ready) OnReady(member);
}

void Supervisor::OnReady(Member& member) {
  member.is_ready = true;
  if (!exit_code_) member.beats.Start(clock_.Monotonic());
  if (next_ && &member == &next_->member) {
    // A frontend is ready once it has taken over. An engine core has, too, if the one before has
    // died meanwhile; else that one reports it, unless no frontend is there to move its requests.
    if (member.is_frontend || !members_[next_->place].child.running()) return CompleteReplacement();
    if (timeouts_.hang_s > 0) next_->give_up_at = clock_.Monotonic() + 2 * timeouts_.hang_s;
    return;
  }
  if (ready_ || !IsAllReady()) return;
  ready_ = true;
  char seconds[16];
  std::snprintf(seconds, sizeof seconds, "%.2f", clock_.Monotonic() - started_at_);
  std::string pids;
  for (const Member& each : members_) {
    pids +=
        (pids.empty() ? "" : ", ") + each.program.name + " pid " + std::to_string(each.child.pid());
  }
  LOG_INFO << "ready after " << seconds << " s (" << pids << ")";
  if (const Status status = SdNotify("READY=1\nSTATUS=serving"); !status.ok())
    LOG_WARNING << status.message();
}

// As the first process of a container we get the children of a member that was killed.
void Supervisor::ReapOrphans() {
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    // A member that has ended meanwhile is the next round's, and so are those after it.
    if (MemberOf(info.si_pid) != nullptr || waitpid(info.si_pid, nullptr, 0) < 0) return;
    info = {};
  }
}

void Supervisor::OnExit(pid_t pid) {
  if (Member* const member = MemberOf(pid)) OnExit(*member);
}

void Supervisor::OnExit(Member& member) {
  const ChildProcess::Exit exit = member.child.Reap();
  member.beats.Stop();
  if (next_ && &member == &next_->member) return OnNextExit(exit);
  const bool is_current = std::any_of(members_.begin(), members_.end(),
                                      [&](const Member& each) { return &each == &member; });
  if (!is_current) return OnLeavingExit(member, exit);
  if (exit_code_) return AdvanceStop();
  LOG_ERROR << member.program.name << " " << exit.ToString();
  if (!ready_) {
    Stop(exit.clean() ? kExitFailed : exit.code());
    return;
  }
  if (is_to_follow(member)) {  // the next one takes its place
    if (next_->member.is_ready) CompleteReplacement();
    return;
  }
  if (member.is_frontend) GiveUpReplacement("the frontend has ended");
  PlanRestart(member);
}

void Supervisor::PlanRestart(Member& member) {
  const double now = clock_.Monotonic();
  std::optional<double> delay = member.restarts.OnDeath(now, member.is_ready);
  if (!delay && IsAnotherEngineReady(member)) {
    LOG_ERROR << member.program.name << " has ended " << member.restarts.num_failed_starts()
              << " times before it was ready: others serve without it";
    delay = RestartPolicy::kMaxDelay;
  }
  if (!delay) {
    LOG_ERROR << member.program.name << " has ended " << member.restarts.num_failed_starts()
              << " times before it was ready: giving up";
    Stop(kExitFailed);
    return;
  }
  member.start_again_at = now + *delay;
  LOG_WARNING << "starting " << member.program.name << " again"
              << (*delay > 0 ? " in " + std::to_string(static_cast<int>(*delay)) + " s" : "");
}

// A frontend is ready once all its engines are.
bool Supervisor::IsAllReady() const {
  if (members_.front().is_frontend) return members_.front().is_ready;
  return std::all_of(members_.begin(), members_.end(),
                     [](const Member& each) { return each.is_ready; });
}

bool Supervisor::IsAnotherEngineReady(const Member& member) const {
  return !member.is_frontend &&
         std::any_of(members_.begin(), members_.end(), [&](const Member& each) {
           return &each != &member && !each.is_frontend && each.is_ready && each.child.running();
         });
}

void Supervisor::Stop(int exit_code) {
  exit_code_ = exit_code;
  kill_at_ = clock_.Monotonic() + timeouts_.stop_s;
  for (Member* member : Members()) {
    member->start_again_at.reset();
    member->beats.Stop();  // an end has a limit of its own
  }
  GiveUpReplacement("the server is stopped");
  if (const Status status = SdNotify("STOPPING=1"); !status.ok()) LOG_WARNING << status.message();
  AdvanceStop();
}

// The frontends first: their running streams need an engine until they have drained.
void Supervisor::AdvanceStop() {
  bool is_frontend_left = false;
  for (Member* member : Members()) {
    if (!member->is_frontend || !member->child.running()) continue;
    is_frontend_left = true;
    StopMember(*member);
  }
  if (is_frontend_left) return;
  for (Member* member : Members()) StopMember(*member);
}

// Once: a second signal would end its wait for requests.
void Supervisor::StopMember(Member& member) {
  if (!std::exchange(member.is_stopping, true)) member.child.Signal(SIGTERM);
}

void Supervisor::KillAll() {
  for (const Member* member : Members()) member->child.Signal(SIGKILL);
}

}  // namespace tandem
