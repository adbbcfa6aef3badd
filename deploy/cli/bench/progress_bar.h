#pragma once

// One line on stderr that shows the progress of a run, redrawn in place and removed at the end.
// Draws nothing unless `visible`. Thread: one at a time.

#include <cstddef>

namespace tandem {

class ProgressBar {
 public:
  ProgressBar(size_t total, bool visible);
  void Show(size_t num_done, size_t num_failed);
  void Finish();

 private:
  const size_t total_;
  const bool visible_;
  const double begin_;
};

}  // namespace tandem
