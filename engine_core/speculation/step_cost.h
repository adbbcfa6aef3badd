#pragma once

// What a decode step costs with more rows than requests, relative to the same step without drafts.
// The shape comes from steps that are timed at start, or is a guess; what real steps take corrects
// it: the context, the machine and its neighbours change what a row costs.
// Thread: engine loop. Pure: times come in.

#include <cstdint>
#include <vector>

namespace tandem {

class StepCost {
 public:
  // Seconds of a step with num_rows rows; ascending. None: each row adds a tenth to the first.
  struct Point {
    int32_t num_rows = 0;
    double seconds = 0;
  };
  explicit StepCost(std::vector<Point> points = {});

  // Of a step with num_drafts rows beyond those of its requests; 1: it costs nothing more.
  double Relative(int32_t num_requests, int32_t num_drafts) const;
  // Of a step with num_rows rows, as it was timed.
  double Seconds(int32_t num_rows) const;
  // A decode step has taken this long.
  void Observe(int32_t num_requests, int32_t num_drafts, double seconds);

 private:
  double Extra(int32_t num_requests, int32_t num_drafts) const;

  std::vector<Point> points_;
  double plain_ = 0;       // what steps without drafts take, over Seconds; 0: not known yet
  double correction_ = 1;  // of Extra
};

}  // namespace tandem
