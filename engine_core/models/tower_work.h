#pragma once

// What a vision tower has to do for an image, in parts that may run at different times, with other
// work in between. A stage computes rows in runs, one after another, and begins when the stage
// before it has ended; a row's bits do not depend on the runs.
// Thread: engine loop. Owns: what its functions have captured. Work: multiplications, estimated.

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "common/status.h"
#include "kernels/device.h"

namespace tandem {

class TowerWork {
 public:
  // Rows [begin, begin + count) of a stage.
  using Run = std::function<Status(int64_t begin, int64_t count)>;

  // Multiplications of a run: few enough that others do not wait long for it, and enough for the
  // products to be fast. Of a device 64 times as many, so that there are fewer launches; not
  // measured.
  static constexpr double kHostRunWork = 0x1p30;  // 3 ms on two cores with AVX512-BF16
  static constexpr double kDeviceRunWork = 0x1p36;
  static double RunWorkOf(const Device& device) {
    return device.memory_is_host() ? kHostRunWork : kDeviceRunWork;
  }

  TowerWork() = default;
  explicit TowerWork(const Device& device) : run_work_(RunWorkOf(device)) {}
  // Fails with this.
  explicit TowerWork(Status failure) : status_(std::move(failure)) {}

  // A stage. ends: where each run ends, rising. row_work: of a row.
  void AddRuns(std::vector<int64_t> ends, double row_work, Run run);
  // The same in runs of RowsAtOnce rows.
  void Add(int64_t num_rows, double row_work, Run run);

  // Runs parts until this share of all work is done; 1: all of it. After a failure nothing more
  // runs, and every call returns it.
  Status RunTo(double share);
  bool done() const { return stage_ == stages_.size(); }

  // Rows that a run should have where each takes so much work.
  static int64_t RowsAtOnce(double row_work, double run_work = kHostRunWork);

 private:
  struct Stage {
    std::vector<int64_t> ends;
    double row_work = 0;
    Run run;
  };
  Status RunNext();

  double run_work_ = kHostRunWork;
  std::vector<Stage> stages_;
  double total_work_ = 0, done_work_ = 0;
  size_t stage_ = 0, run_ = 0;  // the next one
  Status status_;
};

}  // namespace tandem
