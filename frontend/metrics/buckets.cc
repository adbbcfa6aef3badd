#include "frontend/metrics/buckets.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/check.h"

namespace tandem {

Buckets RequestLatencyBuckets() {
  return {0.3, 0.5, 0.8, 1.0, 1.5, 2,   2.5, 5,   10,   15,  20,
          30,  40,  50,  60,  120, 240, 480, 960, 1920, 7680};
}

Buckets TimeToFirstTokenBuckets() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
}

Buckets InterTokenLatencyBuckets() {
  return {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
          0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
}

Buckets IterationTokensBuckets() {
  return {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
}

Buckets RequestTokensBuckets(int64_t max_tokens) {
  Buckets buckets;
  for (int64_t decade = 1;; decade *= 10) {
    for (const int64_t digit : {1, 2, 5}) {
      if (digit * decade > max_tokens) return buckets;
      buckets.push_back(static_cast<double>(digit * decade));
    }
  }
}

Buckets ParamsNBuckets() { return {1, 2, 5, 10, 20}; }
Buckets NumPreemptionsBuckets() { return {1, 2, 3, 4, 5, 10, 20}; }
Buckets KvCacheResidencyBuckets() {
  return {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,  1,   2,
          5,     10,    20,    30,   60,   120,  300, 600, 1200, 1800};
}
Buckets DevCallBuckets() { return {0.01, 0.1, 1, 10, 30, 60, 120, 300, 600}; }
Buckets WebSocketBuckets() { return {0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}; }

BucketFamilies::BucketFamilies()
    : families_({{"request_latency", RequestLatencyBuckets()},
                 {"time_to_first_token", TimeToFirstTokenBuckets()},
                 {"inter_token_latency", InterTokenLatencyBuckets()},
                 {"iteration_tokens", IterationTokensBuckets()},
                 {"request_tokens", RequestTokensBuckets(1'000'000'000)},
                 {"request_params_n", ParamsNBuckets()},
                 {"request_num_preemptions", NumPreemptionsBuckets()},
                 {"kv_cache_residency", KvCacheResidencyBuckets()}}) {}

const Buckets& BucketFamilies::operator[](std::string_view family) const {
  const auto it = families_.find(family);
  CHECK(it != families_.end()) << family;
  return it->second;
}

namespace {

StatusOr<Buckets> ParseBounds(const nlohmann::json& list) {
  const auto bad = InvalidArgumentError("must be ascending numbers above 0, at least one");
  if (!list.is_array() || list.empty()) return bad;
  Buckets bounds;
  for (const auto& item : list) {
    if (!item.is_number()) return bad;
    const auto bound = item.get<double>();
    if (!std::isfinite(bound) || bound <= (bounds.empty() ? 0 : bounds.back())) return bad;
    bounds.push_back(bound);
  }
  return bounds;
}

}  // namespace

StatusOr<BucketFamilies> BucketFamilies::Parse(const std::string& json) {
  BucketFamilies buckets;
  if (json.empty()) return buckets;
  const auto families = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!families.is_object()) {
    return InvalidArgumentError("must be a JSON object of families and lists of bounds");
  }
  for (const auto& [family, list] : families.items()) {
    const auto it = buckets.families_.find(family);
    if (it == buckets.families_.end()) {
      std::string known;
      for (const auto& [name, bounds] : buckets.families_) known += " " + name;
      return InvalidArgumentError(family + " is no family; known:" + known);
    }
    StatusOr<Buckets> bounds = ParseBounds(list);
    if (!bounds.ok()) return bounds.status().WithContext(family);
    it->second = *std::move(bounds);
    if (family == "request_tokens") buckets.has_own_request_tokens_ = true;
  }
  return buckets;
}

}  // namespace tandem
