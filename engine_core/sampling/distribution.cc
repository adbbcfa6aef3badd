#include "engine_core/sampling/distribution.h"

#include <algorithm>
#include <bit>

#include "common/check.h"
#include "engine_core/sampling/row_math.h"

namespace tandem {
namespace {

using Candidate = TokenDistribution::Candidate;

int BucketOf(const Candidate& c) {
  return static_cast<int>(std::bit_cast<uint32_t>(c.weight) >> TokenDistribution::kBucketShift);
}

// More probable, then lower id. Logits are compared, as distant weights may round to one value.
bool Before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token_id < b.token_id);
}

}  // namespace

void TokenDistribution::Reserve(size_t vocab_size) {
  weights_.reserve(vocab_size);
  candidates_.reserve(vocab_size);
  in_bucket_.reserve(vocab_size);
  bucket_.reserve(kNumBuckets);
}

void TokenDistribution::Build(std::span<const float> logits, float max,
                              const DistributionLimits& limits) {
  weights_.resize(logits.size());
  ExpScaled(logits, max, limits.temperature, weights_);
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (weights_[i] > 0 && weights_[i] >= limits.min_p) {
      candidates_.push_back({logits[i], weights_[i], static_cast<TokenId>(i)});
    }
  }
  if (limits.top_k > 0 && static_cast<size_t>(limits.top_k) < candidates_.size()) {
    KeepTopK(static_cast<size_t>(limits.top_k));
  }
  if (limits.top_p < 1) KeepTopP(limits.top_p);
  total_weight_ = 0;
  for (const Candidate& c : candidates_) total_weight_ += c.weight;
}

void TokenDistribution::KeepTopK(size_t k) {
  bucket_.assign(kNumBuckets, 0);
  for (const Candidate& c : candidates_) bucket_[static_cast<size_t>(BucketOf(c))] += 1;
  // The bucket that holds the k-th, and its rank in there.
  int bucket = kNumBuckets - 1;
  size_t rank = k;
  while (bucket_[static_cast<size_t>(bucket)] < static_cast<double>(rank)) {
    rank -= static_cast<size_t>(bucket_[static_cast<size_t>(bucket)]);
    --bucket;
  }
  in_bucket_.clear();
  for (const Candidate& c : candidates_) {
    if (BucketOf(c) == bucket) in_bucket_.push_back(c);
  }
  const auto kth = in_bucket_.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(in_bucket_.begin(), kth, in_bucket_.end(), Before);
  const float bound = kth->logit;
  std::erase_if(candidates_, [bound](const Candidate& c) { return c.logit < bound; });
}

void TokenDistribution::KeepTopP(double top_p) {
  bucket_.assign(kNumBuckets, 0);
  double total = 0;
  for (const Candidate& c : candidates_) {
    bucket_[static_cast<size_t>(BucketOf(c))] += c.weight;
    total += c.weight;
  }
  // The bucket in which the weight of the tokens before it reaches top_p.
  const double wanted = top_p * total;
  int bucket = kNumBuckets - 1;
  double before = 0;
  while (bucket > 0 && before + bucket_[static_cast<size_t>(bucket)] < wanted) {
    before += bucket_[static_cast<size_t>(bucket)];
    --bucket;
  }
  in_bucket_.clear();
  for (const Candidate& c : candidates_) {
    if (BucketOf(c) == bucket) in_bucket_.push_back(c);
  }
  if (in_bucket_.empty()) return;  // rounding: everything is kept
  std::sort(in_bucket_.begin(), in_bucket_.end(), Before);
  size_t kept = 0;
  while (kept < in_bucket_.size() && (before < wanted || kept == 0)) {
    before += in_bucket_[kept++].weight;
  }
  const Candidate last = in_bucket_[kept - 1];
  std::erase_if(candidates_, [&last](const Candidate& c) { return Before(last, c); });
}

TokenId TokenDistribution::Draw(double uniform) const {
  CHECK(!candidates_.empty());
  const double wanted = uniform * total_weight_;
  double sum = 0;
  for (const Candidate& c : candidates_) {
    sum += c.weight;
    if (wanted < sum) return c.token_id;
  }
  return candidates_.back().token_id;  // only by rounding of uniform * total
}

}  // namespace tandem
