#include "common/forking/forking_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "common/forking/job_reply.h"
#include "common/forking/spare_process.h"
#include "common/log.h"
#include "common/log_format.h"

namespace tandem {
namespace {

// Without a job for this long the program works ahead for the next ones, so that it takes no
// processor from those that run.
constexpr int kQuietMs = 20;

// If the host runs out of memory, this process is the one to end.
void OfferToEndFirst() {
  const UniqueFd file(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (file && write(file.get(), "500", 3) < 0) return;  // it is a favour, not a need
}

// What libraries print is not for the caller's log: it quotes the input.
void PrintNowhere() {
  const UniqueFd nowhere(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere.get(), fd);
}

// What a forked process need not have.
void Leave(const ForkingProgramParts& parts) {
  for (const int fd : parts.own_fds) close(fd);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  OfferToEndFirst();
  PrintNowhere();
}

// Before a stranger's input is looked at: the caller may rely on the pidfd.
Status SendBegun(int socket) {
  const char begun = static_cast<char>(ReplyKind::kBegun);
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  const int fd = process.get();
  return SendPacket(socket, {&begun, 1}, std::span(&fd, process ? 1 : 0));
}

int RunJob(const ForkingProgramParts& parts, Packet packet) {
  close(kControlSocket);
  if (!SendBegun(packet.fds[0].get()).ok()) return 1;  // nobody waits for it
  return parts.run({.head = std::move(packet.bytes),
                    .socket = std::move(packet.fds[0]),
                    .input = std::move(packet.fds[1])});
}

bool IsJob(const Packet& packet) { return packet.fds.size() == 2; }

int RunAhead(const ForkingProgramParts& parts, const std::function<void()>& announce) {
  Leave(parts);
  parts.prepare();
  StatusOr<Packet> packet = ReceivePacket(kControlSocket);
  if (!packet.ok() || !IsJob(*packet)) return 0;
  announce();
  return RunJob(parts, *std::move(packet));
}

void ForkFor(const ForkingProgramParts& parts, Packet packet) {
  const pid_t child = fork();
  if (child == 0) {
    Leave(parts);
    _exit(RunJob(parts, std::move(packet)));
  }
  if (child < 0) LOG_ERROR << ErrnoError(errno, "fork").message();  // its socket closes
}

}  // namespace

Status BeginForkingProgram(const char* name, int num_own_fds) {
  close_range(static_cast<unsigned>(kControlSocket + 1 + num_own_fds), ~0U, 0);
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(signal_number, SIG_IGN);
  signal(SIGCHLD, SIG_IGN);  // nobody waits for the forked processes
  RETURN_IF_ERROR(InitLog(name));
  InheritLogFormat();
  return OkStatus();
}

int ServeForkedJobs(const ForkingProgramParts& parts) {
  const char ready = static_cast<char>(ReplyKind::kDone);
  if (!SendPacket(kControlSocket, {&ready, 1}).ok()) return 0;
  SpareProcess spare;
  const auto fork_ahead = [&] {
    if (!parts.prepare) return;
    spare.Start([&](const auto& announce) { return RunAhead(parts, announce); });
  };
  fork_ahead();
  bool is_used = false;  // nothing more is made ready for jobs that never come
  bool is_warm = !parts.warm_up;
  bool needs_spare = false;  // one that died without a job is not followed by another
  for (;;) {
    const bool had_spare = static_cast<bool>(spare);
    switch (spare.Wait(is_used && !is_warm ? kQuietMs : -1)) {
      case SpareProcess::Fate::kWaits:
        is_warm = !parts.warm_up();
        if (!is_warm) continue;
        spare.End();  // it lacks what was made ready since
        fork_ahead();
        continue;
      case SpareProcess::Fate::kHasJob:
        is_used = needs_spare = true;
        break;
      case SpareProcess::Fate::kGone:
        if (had_spare) needs_spare = false;
        break;
    }
    StatusOr<Packet> packet = ReceivePacket(kControlSocket, needs_spare ? kQuietMs : -1);
    if (packet.ok()) {
      if (!IsJob(*packet)) continue;
      ForkFor(parts, *std::move(packet));
      is_used = true;
      needs_spare = static_cast<bool>(parts.prepare);
    } else if (packet.status().code() != StatusCode::kDeadlineExceeded) {
      return 0;
    } else {
      fork_ahead();
      needs_spare = static_cast<bool>(spare);
    }
  }
}

}  // namespace tandem
