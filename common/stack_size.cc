#include "common/stack_size.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>

namespace tandem {
namespace {

constexpr rlim_t kUsual = rlim_t{8} << 20;    // Linux's own limit
constexpr rlim_t kLeast = rlim_t{256} << 10;  // of a main thread: it starts the others and waits

// Processes that this one starts inherit the limit.
rlim_t RaiseLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0) return kUsual;
  if (limit.rlim_cur >= kUsual) return limit.rlim_cur;  // also RLIM_INFINITY, the largest
  const rlimit raised = {std::min(kUsual, limit.rlim_max), limit.rlim_max};
  if (setrlimit(RLIMIT_STACK, &raised) == 0) return raised.rlim_cur;
  return limit.rlim_cur;
}

// Where there is no limit, the library's default is a quarter of the usual size.
void EnlargeThreads() {
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) != 0) return;
  size_t bytes = 0;
  if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < kUsual) {
    pthread_attr_setstacksize(&attributes, kUsual);
    pthread_setattr_default_np(&attributes);
  }
  pthread_attr_destroy(&attributes);
}

}  // namespace

Status EnsureStackSize() {
  EnlargeThreads();
  const rlim_t bytes = RaiseLimit();
  if (bytes >= kLeast) return OkStatus();
  return FailedPreconditionError("the stack may have " + std::to_string(bytes >> 10) +
                                 " KiB (ulimit -s), and " + std::to_string(kLeast >> 10) +
                                 " are needed");
}

}  // namespace tandem
