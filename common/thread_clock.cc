#include "common/thread_clock.h"

#include <pthread.h>

#include "common/check.h"

namespace tandem {

ThreadClock::ThreadClock() { CHECK_EQ(pthread_getcpuclockid(pthread_self(), &id_), 0); }

double ThreadClock::Seconds() const {
  timespec ts;
  clock_gettime(id_, &ts);
  return static_cast<double>(ts.tv_sec) + 1e-9 * static_cast<double>(ts.tv_nsec);
}

}  // namespace tandem
