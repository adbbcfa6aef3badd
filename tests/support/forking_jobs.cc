// A helper program for tests of forked jobs. A job replies whether its process was forked ahead of
// it, the process ids of the program and its own, and what the program had made ready by then.
// The job "wrong" is refused with a message that is no UTF-8; the process of "stop" stops, that of
// "block" waits for ever, and that of "compute" computes for a second before it replies. One with
// an input, the name of a file that is not there, makes the file and stops. Started with "dies",
// processes that are forked ahead die before their jobs come; with "warms" the program makes three
// things ready, and then has the name "warm".

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "common/forking/forking_program.h"
#include "common/forking/job_reply.h"
#include "common/mailbox.h"
#include "common/thread_clock.h"

namespace {

void Compute(double seconds) {
  const tandem::ThreadClock clock;
  const double end = clock.Seconds() + seconds;
  while (clock.Seconds() < end) {
  }
}

// Whether the input names a file that was not there.
bool MakesFile(int input) {
  const tandem::StatusOr<std::string> file = tandem::ReadMemoryFile(input);
  if (!file.ok() || file->empty()) return false;
  return tandem::UniqueFd(open(file->c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600)).get() >= 0;
}

}  // namespace

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
    if (job.head == "stop") raise(SIGSTOP);
    if (job.head == "block") Mailbox<int>().Wait();
    if (job.head == "compute") Compute(1);
    if (MakesFile(job.input.get())) raise(SIGSTOP);
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
