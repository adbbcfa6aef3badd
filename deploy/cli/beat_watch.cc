#include "deploy/cli/beat_watch.h"

namespace tandem {

void BeatWatch::Start(double now) {
  num_silent_looks_ = 0;
  if (timeout_s_ > 0) next_look_ = now + timeout_s_ / kLooksPerTimeout;
}

bool BeatWatch::Look(double now) {
  next_look_ = now + timeout_s_ / kLooksPerTimeout;
  return ++num_silent_looks_ > kLooksPerTimeout;
}

}  // namespace tandem
