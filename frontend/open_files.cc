#include "frontend/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <string>

namespace tandem {

int64_t RaiseOpenFileLimit() {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return kAny;
  if (files.rlim_cur < files.rlim_max) {
    const rlim_t before = files.rlim_cur;
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0) files.rlim_cur = before;
  }
  return files.rlim_cur == RLIM_INFINITY ? kAny : static_cast<int64_t>(files.rlim_cur);
}

// Counted: 20, 13 for each shard, 2 for each engine of a shard, which are twice as many during a
// swap. The others are for files, images and spans that come and go.
int64_t NumOwnFiles(int64_t num_engines, int64_t num_shards) {
  return 64 + 14 * num_shards + 4 * num_engines * num_shards;
}

StatusOr<int64_t> ConnectionsThatFit(int64_t wanted, int64_t num_own_files, int64_t max_files) {
  if (max_files <= num_own_files) {
    return FailedPreconditionError("this process may have " + std::to_string(max_files) +
                                   " files open, and needs " + std::to_string(num_own_files) +
                                   " besides one for each connection (ulimit -n)");
  }
  return std::min(wanted, max_files - num_own_files);
}

}  // namespace tandem
