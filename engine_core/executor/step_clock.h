#pragma once

// How long steps keep a device busy, and how long it waits between them, by its own clock. A step
// lasts from the arrival of its inputs to its last op; copies of inputs and results, and the work
// of admissions before a step, are time between steps. A step that enters an empty queue is counted
// from the moment its first op is queued.
// Thread: engine loop. Where memory is the host's, all times are 0.

#include "kernels/device.h"

namespace tandem {

struct DeviceTimes {
  int64_t num_steps = 0;  // without the first, which follows no other
  double busy_seconds = 0;
  double idle_seconds = 0;  // before these steps

  double idle_share() const {
    const double all = busy_seconds + idle_seconds;
    return all > 0 ? idle_seconds / all : 0;
  }
};

class StepClock {
 public:
  struct Step {
    int64_t begin = 0, end = 0;  // time points; 0: the clock was not running
  };

  // Counts from zero, from the next step on.
  void Start(Device* device) {
    device_ = device;
    times_ = {};
    last_end_ = 0;
    start_ = device->SetTimePoint();
  }
  void Begin(Step* step) {
    *step = {};
    if (device_ != nullptr) step->begin = device_->SetTimePoint();
  }
  void End(Step* step) {
    if (step->begin > 0) step->end = device_->SetTimePoint();
  }
  // Takes each step once, in order; waits until it is done.
  void Add(const Step& step) {
    if (step.end == 0 || step.begin < start_) return;
    if (last_end_ > 0) {
      times_.idle_seconds += device_->SecondsBetween(last_end_, step.begin);
      times_.busy_seconds += device_->SecondsBetween(step.begin, step.end);
      ++times_.num_steps;
    }
    last_end_ = step.end;
  }
  const DeviceTimes& times() const { return times_; }

 private:
  Device* device_ = nullptr;  // null: not started
  DeviceTimes times_;
  int64_t start_ = 0;
  int64_t last_end_ = 0;
};

}  // namespace tandem
