#include "common/clock.h"

#include <time.h>

namespace tandem {
namespace {

double Now(clockid_t id) {
  timespec ts;
  clock_gettime(id, &ts);
  return static_cast<double>(ts.tv_sec) + 1e-9 * static_cast<double>(ts.tv_nsec);
}

}  // namespace

double SystemClock::Monotonic() const { return Now(CLOCK_MONOTONIC); }
double SystemClock::Unix() const { return Now(CLOCK_REALTIME); }

}  // namespace tandem
