#pragma once

// Whether a process that should send beats has hung. Its watcher looks a few times per timeout; a
// look that finds no beat since the last one counts, and kLooksPerTimeout of them in a row are a
// hang. Time in which the watcher itself was stopped has no looks, so it does not count. Values
// only; the supervisor's thread. Units: seconds of any one monotonic clock.

#include <optional>

namespace tandem {

class BeatWatch {
 public:
  static constexpr int kLooksPerTimeout = 5;

  // timeout_s 0: nothing is watched.
  explicit BeatWatch(double timeout_s) : timeout_s_(timeout_s) {}

  void Start(double now);  // the process is ready
  void Stop() { next_look_.reset(); }
  void OnBeat() { num_silent_looks_ = 0; }
  // When to look; nullopt: never.
  std::optional<double> next_look() const { return next_look_; }
  // Whether it hangs. REQUIRES: next_look() has come.
  bool Look(double now);

 private:
  double timeout_s_;
  std::optional<double> next_look_;
  int num_silent_looks_ = 0;
};

}  // namespace tandem
