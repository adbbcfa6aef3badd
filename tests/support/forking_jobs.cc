// A helper program for tests of forked jobs. A job replies whether its process was forked ahead of
// it, the process ids of the program and its own, and what the program had made ready by then.
// The job "wrong" is refused with a message that is no UTF-8. Started with "dies", processes that
// are forked ahead die before their jobs come; with "warms" the program makes three things ready,
// and then has the name "warm".

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "common/forking/forking_program.h"
#include "common/forking/job_reply.h"

int main(int argc, char** argv) {
  using namespace tandem;
  const std::string_view mode = argc > 1 ? argv[1] : "";
  bool is_prepared = false;
  int num_ready = 0;
  const auto prepare = [&] {
    if (mode == "dies") raise(SIGKILL);
    is_prepared = true;
  };
  const auto warm_up = [&] {
    constexpr int kMostReady = 3;
    if (++num_ready < kMostReady) return true;
    prctl(PR_SET_NAME, "warm");
    return false;
  };
  const auto run = [&](const ForkedJob& job) {
    if (job.head == "wrong")
      return FailWith(job.socket.get(), InvalidArgumentError("half of \xc3"));
    const std::string reply = static_cast<char>(ReplyKind::kDone) +
                              std::string(is_prepared ? "ahead " : "then ") +
                              std::to_string(getppid()) + ' ' + std::to_string(getpid()) + ' ' +
                              std::to_string(num_ready);
    return SendPacket(job.socket.get(), reply).ok() ? 0 : 1;
  };
  if (!BeginForkingProgram("forking-jobs", 0).ok()) return 1;
  ForkingProgramParts parts = {.own_fds = {}, .prepare = prepare, .run = run};
  if (mode == "warms") parts.warm_up = warm_up;
  return ServeForkedJobs(parts);
}
