#include "engine_core/sampling/distribution.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "common/check.h"
#include "engine_core/sampling/row_math.h"

namespace tandem {
namespace {

// Buckets of weights in [0, 1] by exponent and three leading mantissa bits.
constexpr int kBucketShift = 20;
constexpr size_t kNumBuckets = (0x3f800000 >> kBucketShift) + 1;

size_t BucketOf(float weight) { return std::bit_cast<uint32_t>(weight) >> kBucketShift; }

}  // namespace

// More probable, then lower id. Logits are compared, as distant weights may round to one value.
bool TokenDistribution::Before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token_id < b.token_id);
}

void TokenDistribution::Reserve(size_t vocab_size) {
  weights_.reserve(vocab_size);
  candidates_.reserve(vocab_size);
  by_weight_.reserve(vocab_size);
  bucket_weights_.reserve(kNumBuckets);
}

void TokenDistribution::Build(std::span<const float> logits, float max,
                              const DistributionLimits& limits) {
  weights_.resize(logits.size());
  ExpScaled(logits, max, limits.temperature, weights_);
  const bool has_top_k = limits.top_k > 0, has_top_p = limits.top_p < 1;
  keeps_all_ = !has_top_k && !has_top_p && limits.min_p <= 0;
  if (keeps_all_) {
    total_weight_ = Sum(weights_);
    return;
  }
  // top_p is a share of what min_p and top_k leave. Without these that is the whole row.
  const double row_weight = has_top_p && !has_top_k && limits.min_p <= 0 ? Sum(weights_) : 0;
  const size_t needed_tokens = has_top_k ? static_cast<size_t>(limits.top_k) : 0;
  const double needed_weight = limits.top_p * row_weight;
  float least = has_top_k || row_weight > 0 ? 0x1p-8f : 0;  // 99% of nuclei lie above
  double gathered = Gather(logits, std::max(least, limits.min_p));
  while (least > limits.min_p && (candidates_.size() < needed_tokens || gathered < needed_weight)) {
    least = least > 0x1p-100f ? least * 0x1p-12f : 0;
    gathered = Gather(logits, std::max(least, limits.min_p));
  }
  if (has_top_k && needed_tokens < candidates_.size()) KeepTopK(needed_tokens);
  if (has_top_p) {
    double left = row_weight;
    if (row_weight == 0) {
      for (const Candidate& c : candidates_) left += c.weight;
    }
    KeepTopP(limits.top_p * left);
  }
  total_weight_ = 0;
  for (const Candidate& c : candidates_) total_weight_ += c.weight;
}

// Makes the tokens of at least this weight the candidates; returns their sum.
double TokenDistribution::Gather(std::span<const float> logits, float least_weight) {
  candidates_.clear();
  double sum = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] < least_weight || weights_[i] == 0) continue;
    candidates_.push_back({logits[i], weights_[i], static_cast<TokenId>(i)});
    sum += weights_[i];
  }
  return sum;
}

void TokenDistribution::KeepTopK(size_t k) {
  by_weight_ = candidates_;
  const auto kth = by_weight_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(by_weight_.begin(), kth, by_weight_.end(), Before);
  const float bound = kth->logit;
  std::erase_if(candidates_, [bound](const Candidate& c) { return c.logit < bound; });
}

// Keeps the likely ones until they hold `wanted_weight`; the likeliest always. Flat distributions
// keep tens of thousands, so only the bucket in which the limit falls is sorted.
void TokenDistribution::KeepTopP(double wanted_weight) {
  bucket_weights_.assign(kNumBuckets, 0);
  for (const Candidate& c : candidates_) bucket_weights_[BucketOf(c.weight)] += c.weight;
  size_t bucket = kNumBuckets - 1;
  double before = 0;
  while (bucket > 0 && before + bucket_weights_[bucket] < wanted_weight) {
    before += bucket_weights_[bucket--];
  }
  by_weight_.clear();
  for (const Candidate& c : candidates_) {
    if (BucketOf(c.weight) == bucket) by_weight_.push_back(c);
  }
  if (by_weight_.empty()) return;  // rounding of the sums: everything is kept
  std::sort(by_weight_.begin(), by_weight_.end(), Before);
  size_t kept = 0;
  while (kept < by_weight_.size() && (kept == 0 || before < wanted_weight)) {
    before += by_weight_[kept++].weight;
  }
  const Candidate last = by_weight_[kept - 1];
  std::erase_if(candidates_, [&last](const Candidate& c) { return Before(last, c); });
}

TokenId TokenDistribution::Draw(double uniform) const {
  const double wanted = uniform * total_weight_;
  if (keeps_all_) return DrawFromAll(wanted);
  CHECK(!candidates_.empty());
  double sum = 0;
  for (const Candidate& c : candidates_) {
    sum += c.weight;
    if (wanted < sum) return c.token_id;
  }
  return candidates_.back().token_id;  // only by rounding of uniform * total
}

// Whole blocks are skipped by their sums, as Sum adds them up.
TokenId TokenDistribution::DrawFromAll(double wanted_weight) const {
  double sum = 0;
  size_t last_possible = 0;
  for (size_t begin = 0; begin < weights_.size(); begin += kSumBlock) {
    const auto block =
        std::span(weights_).subspan(begin, std::min(kSumBlock, weights_.size() - begin));
    const double block_sum = Sum(block);
    if (wanted_weight >= sum + block_sum) {
      if (block_sum > 0) last_possible = begin;
      sum += block_sum;
      continue;
    }
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i] == 0) continue;
      sum += block[i];
      last_possible = begin + i;
      if (wanted_weight < sum) break;
    }
    return static_cast<TokenId>(last_possible);
  }
  // Only by rounding of uniform * total: the last token that is possible at all.
  while (last_possible + 1 < weights_.size() && weights_[last_possible] == 0) ++last_possible;
  return static_cast<TokenId>(last_possible);
}

void TokenDistribution::MaskDropped(const DistributionLimits& limits, std::span<float> logits) {
  if (keeps_all_) return;
  constexpr float kDropped = -std::numeric_limits<float>::infinity();
  // top_k alone also keeps tokens whose weight is too small to count.
  if (limits.top_p >= 1 && limits.min_p <= 0) {
    weights_.assign(logits.begin(), logits.end());
    const auto kth = weights_.begin() + (limits.top_k - 1);
    std::nth_element(weights_.begin(), kth, weights_.end(), std::greater<float>());
    const float bound = *kth;
    for (float& x : logits) x = x < bound ? kDropped : x;
    return;
  }
  size_t next = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (next < candidates_.size() && candidates_[next].token_id == static_cast<TokenId>(i)) {
      ++next;
    } else {
      logits[i] = kDropped;
    }
  }
}

double TokenDistribution::Probability(TokenId token_id) const {
  if (keeps_all_) return weights_[static_cast<size_t>(token_id)] / total_weight_;
  for (const Candidate& c : candidates_) {
    if (c.token_id == token_id) return c.weight / total_weight_;
  }
  return 0;
}

}  // namespace tandem
