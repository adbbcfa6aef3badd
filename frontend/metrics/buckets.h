#pragma once

// The bounds of the histograms: vLLM's families, which --custom-histogram-buckets replaces one by
// one. Pure; any thread. Units: those of the series.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

using Buckets = std::vector<double>;

Buckets RequestLatencyBuckets();
Buckets TimeToFirstTokenBuckets();
Buckets InterTokenLatencyBuckets();
Buckets IterationTokensBuckets();
Buckets RequestTokensBuckets(int64_t max_tokens);  // 1-2-5 decades up to max_tokens
Buckets ParamsNBuckets();
Buckets NumPreemptionsBuckets();
Buckets KvCacheResidencyBuckets();
Buckets DevCallBuckets();
Buckets WebSocketBuckets();

// Bounds by family. request_tokens goes to 10^9, so that a scrape can cut it at the model's length.
class BucketFamilies {
 public:
  BucketFamilies();

  // {"time_to_first_token": [0.1, 1], ...}. INVALID_ARGUMENT names the family and what its bounds
  // must be: finite, above 0 and ascending.
  static StatusOr<BucketFamilies> Parse(const std::string& json);

  // REQUIRES: a family of vLLM's.
  const Buckets& operator[](std::string_view family) const;
  bool has_own_request_tokens() const { return has_own_request_tokens_; }

 private:
  std::map<std::string, Buckets, std::less<>> families_;
  bool has_own_request_tokens_ = false;
};

}  // namespace tandem
