#pragma once

// The distribution a token is drawn from: temperature, min_p, top_k, top_p, softmax over one row.
// No full sort: weights fall into buckets by their float exponent and leading mantissa bits, and
// only the bucket that a limit falls into is looked at token by token.
// Thread: one row at a time per object. Ownership: scratch that grows to the vocabulary once.

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"

namespace tandem {

struct DistributionLimits {
  float temperature = 1;  // > 0
  float min_p = 0;        // drops p < min_p * max p; 0: off
  int32_t top_k = 0;      // keeps all values >= the k-th largest; <= 0: off
  float top_p = 1;        // keeps a token while those before it hold less than top_p; >= 1: off
};

class TokenDistribution {
 public:
  struct Candidate {
    float logit;
    float weight;  // proportional to the probability; the largest is 1
    TokenId token_id;
  };

  // Buckets: positive floats up to 1 by exponent and 3 leading mantissa bits.
  static constexpr int kBucketShift = 20;
  static constexpr int kNumBuckets = (0x3f800000 >> kBucketShift) + 1;

  // Room for rows of so many logits; nothing is allocated afterwards.
  void Reserve(size_t vocab_size);

  // REQUIRES `max` to be the largest of `logits` and finite; -infinity means not allowed.
  void Build(std::span<const float> logits, float max, const DistributionLimits& limits);

  // The token whose share of [0, 1), in order of ids, holds `uniform`.
  TokenId Draw(double uniform) const;

  std::span<const Candidate> candidates() const { return candidates_; }
  double total_weight() const { return total_weight_; }

 private:
  void KeepTopK(size_t k);
  void KeepTopP(double top_p);

  std::vector<float> weights_;
  std::vector<Candidate> candidates_;  // ascending ids
  std::vector<Candidate> in_bucket_;   // those of the bucket a limit falls into
  std::vector<double> bucket_;
  double total_weight_ = 0;
};

}  // namespace tandem
