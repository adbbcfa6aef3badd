#pragma once

// Results of the steps that were submitted and not collected, in their order. Thread: engine loop.
// Nothing is allocated once the results have grown.

#include <array>
#include <utility>

#include "common/check.h"
#include "engine_core/executor/executor.h"
#include "engine_core/scheduler/model_output.h"

namespace tandem {

class ResultQueue {
 public:
  // Adds a cleared result, the newest.
  ModelOutput* Push() {
    CHECK_LT(size_, kMaxStepsInFlight);
    ModelOutput* newest = &results_[(first_ + size_++) % kMaxStepsInFlight];
    newest->Clear();
    return newest;
  }
  bool IsOldest(const ModelOutput* result) const {
    return size_ > 0 && result == &results_[first_];
  }
  // Moves the oldest into *result.
  void Pop(ModelOutput* result) {
    CHECK_GT(size_, 0u);
    std::swap(*result, results_[first_]);
    first_ = (first_ + 1) % kMaxStepsInFlight;
    --size_;
  }

 private:
  std::array<ModelOutput, kMaxStepsInFlight> results_;
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace tandem
