#pragma once

// Token-weighted share of prompt tokens found in the prefix cache, over the last 1,000 requests.
// Thread: one.

#include <cstdint>
#include <deque>

namespace tandem {

class HitRateWindow {
 public:
  void Add(int64_t requests, int64_t queries, int64_t hits);
  void Reset();
  bool empty() const { return entries_.empty(); }
  double rate() const;

 private:
  static constexpr int64_t kMaxRequests = 1000;
  struct Entry {
    int64_t requests;
    int64_t queries;
    int64_t hits;
  };
  std::deque<Entry> entries_;
  Entry total_{};
};

}  // namespace tandem
