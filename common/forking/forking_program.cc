#include "common/forking/forking_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "common/forking/job_reply.h"
#include "common/log.h"
#include "common/log_format.h"

namespace tandem {
namespace {

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

int RunForked(const ForkingProgramParts& parts, Packet packet) {
  close(kControlSocket);
  for (const int fd : parts.own_fds) close(fd);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  OfferToEndFirst();
  PrintNowhere();
  return parts.run({.head = std::move(packet.bytes),
                    .socket = std::move(packet.fds[0]),
                    .input = std::move(packet.fds[1])});
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
  bool is_used = false;  // nothing more is made ready for jobs that never come
  for (;;) {
    const bool waits = !is_used || !parts.warm_up || !parts.warm_up();
    StatusOr<Packet> packet = ReceivePacket(kControlSocket, waits ? -1 : 0);
    if (packet.status().code() == StatusCode::kDeadlineExceeded) continue;
    if (!packet.ok()) return 0;
    if (packet->fds.size() != 2) continue;
    is_used = true;
    const pid_t child = fork();
    if (child == 0) _exit(RunForked(parts, *std::move(packet)));
    if (child < 0) LOG_ERROR << ErrnoError(errno, "fork").message();  // its socket closes
  }
}

}  // namespace tandem
