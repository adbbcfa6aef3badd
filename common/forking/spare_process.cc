#include "common/forking/spare_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tandem {

void SpareProcess::Start(const std::function<int(const Announce&)>& run) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  UniqueFd reading(ends[0]), writing(ends[1]);
  const pid_t program = getpid();
  id_ = fork();
  if (id_ > 0) announced_ = std::move(reading);
  if (id_ != 0) return;
  reading.Reset();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != program) _exit(0);  // it ended before that
  _exit(run([&writing] {
    const char byte = 'j';
    if (write(writing.get(), &byte, 1) != 1) _exit(0);  // the program is gone
    prctl(PR_SET_PDEATHSIG, 0);
    writing.Reset();
  }));
}

SpareProcess::Fate SpareProcess::Wait(int timeout_ms) {
  if (!announced_) return Fate::kGone;
  pollfd waited = {announced_.get(), POLLIN, 0};
  int count = 0;
  while ((count = poll(&waited, 1, timeout_ms)) < 0 && errno == EINTR) {
  }
  if (count == 0) return Fate::kWaits;
  char byte = 0;
  const bool has_job = read(announced_.get(), &byte, 1) == 1;
  announced_.Reset();
  return has_job ? Fate::kHasJob : Fate::kGone;
}

void SpareProcess::End() {
  if (Wait(0) != Fate::kWaits) return;
  kill(id_, SIGKILL);
  announced_.Reset();
}

}  // namespace tandem
