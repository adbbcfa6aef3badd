#include "engine_core/speculation/step_cost.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

// Of an estimate, taken from its newest observation.
constexpr double kWeight = 0.1;
// Without observations the correction goes back to 1, so that one slow step is not believed for
// ever: once it forbids drafts, no other would follow.
constexpr double kForgotten = 0.02;
constexpr double kLeastCorrection = 0.25, kMostCorrection = 8;

}  // namespace

StepCost::StepCost(std::vector<Point> points) : points_(std::move(points)) {
  if (points_.empty()) points_ = {{1, 1.0}, {2, 1.1}};
  // A larger step that was quicker was not disturbed, the smaller one was.
  for (size_t i = points_.size() - 1; i-- > 0;) {
    points_[i].seconds = std::min(points_[i].seconds, points_[i + 1].seconds);
  }
}

// Linear between the points, and beyond the last.
double StepCost::Seconds(int32_t num_rows) const {
  if (points_.size() == 1) return points_[0].seconds;
  size_t i = 1;
  while (i + 1 < points_.size() && points_[i].num_rows < num_rows) ++i;
  const Point &a = points_[i - 1], &b = points_[i];
  const double slope = (b.seconds - a.seconds) / (b.num_rows - a.num_rows);
  return a.seconds + slope * (num_rows - a.num_rows);
}

double StepCost::Extra(int32_t num_requests, int32_t num_drafts) const {
  return Seconds(num_requests + num_drafts) / Seconds(num_requests) - 1;
}

double StepCost::Relative(int32_t num_requests, int32_t num_drafts) const {
  return 1 + correction_ * Extra(num_requests, num_drafts);
}

void StepCost::Observe(int32_t num_requests, int32_t num_drafts, double seconds) {
  const double taken = seconds / Seconds(num_requests);
  if (num_drafts == 0) {
    plain_ = plain_ == 0 ? taken : plain_ + kWeight * (taken - plain_);
    correction_ += kForgotten * (1 - correction_);
    return;
  }
  const double extra = Extra(num_requests, num_drafts);
  if (plain_ == 0 || extra <= 0) return;
  const double observed = std::clamp((taken / plain_ - 1) / extra, 0.0, kMostCorrection);
  correction_ += kWeight * (observed - correction_);
  correction_ = std::max(correction_, kLeastCorrection);
}

}  // namespace tandem
