// A helper program for tests of forked jobs. A job replies whether its process was forked ahead of
// it, and the process ids of the program and its own. Started with "dies", such processes die
// before their jobs come.

#include <signal.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "common/forking/forking_program.h"
#include "common/forking/job_reply.h"

int main(int argc, char** argv) {
  using namespace tandem;
  const bool dies = argc > 1 && std::string_view(argv[1]) == "dies";
  bool is_prepared = false;
  if (!BeginForkingProgram("forking-jobs", 0).ok()) return 1;
  return ServeForkedJobs({.own_fds = {},
                          .prepare =
                              [&] {
                                if (dies) raise(SIGKILL);
                                is_prepared = true;
                              },
                          .run =
                              [&](const ForkedJob& job) {
                                const std::string reply =
                                    static_cast<char>(ReplyKind::kDone) +
                                    std::string(is_prepared ? "ahead " : "then ") +
                                    std::to_string(getppid()) + ' ' + std::to_string(getpid());
                                return SendPacket(job.socket.get(), reply).ok() ? 0 : 1;
                              }});
}
