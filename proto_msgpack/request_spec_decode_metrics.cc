#include "proto_msgpack/request_spec_decode_metrics.h"

#include <numeric>

namespace tandem::wire {

int64_t RequestSpecDecodeMetrics::num_steps() const {
  return std::accumulate(histogram.begin(), histogram.end(), int64_t{0});
}

int64_t RequestSpecDecodeMetrics::num_accepted() const {
  int64_t sum = 0;
  for (size_t i = 0; i < histogram.size(); ++i) sum += static_cast<int64_t>(i) * histogram[i];
  return sum;
}

}  // namespace tandem::wire
