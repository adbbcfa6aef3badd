#pragma once

// The CPU time of one thread, which others may read: whether it computes or stands still.
// Thread: the constructor on the thread that is measured; Seconds on any, while that thread runs.

#include <time.h>

namespace tandem {

class ThreadClock {
 public:
  ThreadClock();
  double Seconds() const;

 private:
  clockid_t id_;
};

}  // namespace tandem
