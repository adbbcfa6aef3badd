#include "engine_core/models/tower_work.h"

#include <algorithm>
#include <limits>

#include "common/check.h"

namespace tandem {

int64_t TowerWork::RowsAtOnce(double row_work, double run_work) {
  // The cpu backend's attention takes so many queries in one pass over the keys.
  constexpr int64_t kGranule = 48, kFewest = 96;
  const int64_t most = run_work > kHostRunWork ? 3840 : 480;
  const double rows = run_work / std::max(row_work, 1.0);
  if (rows >= static_cast<double>(most)) return most;
  return std::max(static_cast<int64_t>(rows) / kGranule * kGranule, kFewest);
}

void TowerWork::AddRuns(std::vector<int64_t> ends, double row_work, Run run) {
  CHECK(!ends.empty() && std::ranges::is_sorted(ends));
  total_work_ += row_work * static_cast<double>(ends.back());
  stages_.push_back({.ends = std::move(ends), .row_work = row_work, .run = std::move(run)});
}

void TowerWork::Add(int64_t num_rows, double row_work, Run run) {
  std::vector<int64_t> ends;
  const int64_t at_once = RowsAtOnce(row_work, run_work_);
  for (int64_t end = at_once; end < num_rows; end += at_once) ends.push_back(end);
  ends.push_back(num_rows);
  AddRuns(std::move(ends), row_work, std::move(run));
}

Status TowerWork::RunTo(double share) {
  const double goal = share < 1 ? share * total_work_ : std::numeric_limits<double>::infinity();
  while (status_.ok() && !done() && done_work_ < goal) status_ = RunNext();
  return status_;
}

Status TowerWork::RunNext() {
  const Stage& stage = stages_[stage_];
  const int64_t begin = run_ == 0 ? 0 : stage.ends[run_ - 1];
  const int64_t count = stage.ends[run_] - begin;
  RETURN_IF_ERROR(stage.run(begin, count));
  done_work_ += stage.row_work * static_cast<double>(count);
  if (++run_ < stage.ends.size()) return OkStatus();
  run_ = 0;
  ++stage_;
  return OkStatus();
}

}  // namespace tandem
