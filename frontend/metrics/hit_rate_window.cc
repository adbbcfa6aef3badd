#include "frontend/metrics/hit_rate_window.h"

namespace tandem {

void HitRateWindow::Add(int64_t requests, int64_t queries, int64_t hits) {
  if (requests == 0) return;
  entries_.push_back({requests, queries, hits});
  total_.requests += requests;
  total_.queries += queries;
  total_.hits += hits;
  while (entries_.size() > 1 && total_.requests > kMaxRequests) {
    const Entry& oldest = entries_.front();
    total_.requests -= oldest.requests;
    total_.queries -= oldest.queries;
    total_.hits -= oldest.hits;
    entries_.pop_front();
  }
}

void HitRateWindow::Reset() {
  entries_.clear();
  total_ = {};
}

double HitRateWindow::rate() const {
  if (total_.queries == 0) return 0;
  return static_cast<double>(total_.hits) / static_cast<double>(total_.queries);
}

}  // namespace tandem
