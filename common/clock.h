#pragma once

// Time, so that a simulation can own it. Two implementations: SystemClock and ManualClock.
// Thread: SystemClock any; ManualClock the thread that runs the simulation.
// Units: seconds as double. Intervals are taken only between two Monotonic() stamps of one process.

namespace tandem {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual double Monotonic() const = 0;  // CLOCK_MONOTONIC
  virtual double Unix() const = 0;       // seconds since 1970
};

class SystemClock final : public Clock {
 public:
  double Monotonic() const override;
  double Unix() const override;
};

class ManualClock final : public Clock {
 public:
  explicit ManualClock(double now = 0) : now_(now) {}
  double Monotonic() const override { return now_; }
  double Unix() const override { return kUnixAtZero + now_; }
  void Advance(double seconds) { now_ += seconds; }

 private:
  static constexpr double kUnixAtZero = 1.7e9;
  double now_;
};

}  // namespace tandem
