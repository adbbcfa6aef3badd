#pragma once

// Weights that report how far a loader is: a large model takes minutes. A loader asks for tensors
// layer by layer, so the last one shows how many are done. And where that is shown: a bar on a
// terminal.
// Thread: the loader's. Failure: none of its own.

#include <functional>
#include <memory>
#include <string>

#include "common/clock.h"
#include "engine_core/weights/safetensors.h"
#include "kernels/slice.h"

namespace tandem {

struct LoadingState {
  double part = 0;   // of the layers that are done
  std::string text;  // "layer 12 of 80, 4.2 GiB read, 1.05 GiB/s, 0:23 left"
};

// Seconds: until the first report at least, and between two.
struct ReportTimes {
  double first_s = 0;
  double every_s = 0;
};

// layers: those that the loader loads, of a stage its own. What is borrowed outlives the result,
// whose life is the load.
std::unique_ptr<Weights> WithProgress(Weights* weights, Slice layers, const Clock* clock,
                                      ReportTimes times,
                                      std::function<void(const LoadingState&)> report);

// A line on stderr that is redrawn in place and taken off in the end. The cursor stays at its
// begin, so lines of a log write over it.
class LoadingBar {
 public:
  LoadingBar() = default;
  LoadingBar(const LoadingBar&) = delete;
  ~LoadingBar();
  void Draw(const LoadingState& state);

 private:
  bool is_drawn_ = false;
};

}  // namespace tandem
