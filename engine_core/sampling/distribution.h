#pragma once

// The distribution a token is drawn from: temperature, min_p, top_k, top_p, softmax over one row.
// No full sort: tokens above a guessed weight are gathered, and the guess is lowered until they are
// certain to include everything that the limits keep; only they are searched.
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
  float top_p = 1;        // keeps a token while the likelier ones sum to less; >= 1: off
};

class TokenDistribution {
 public:
  // Room for rows of vocab_size logits; nothing is allocated afterwards.
  void Reserve(size_t vocab_size);

  // REQUIRES `max` to be the largest of `logits` and finite; -infinity means not allowed.
  void Build(std::span<const float> logits, float max, const DistributionLimits& limits);

  // The token whose share of [0, 1), in order of ids, contains `uniform`.
  TokenId Draw(double uniform) const;

  double Probability(TokenId token_id) const;

  // Sets the logits that Build's limits dropped to -infinity. REQUIRES the `logits` given to Build.
  void MaskDropped(const DistributionLimits& limits, std::span<float> logits);

 private:
  struct Candidate {
    float logit;
    float weight;
    TokenId token_id;
  };
  static bool Before(const Candidate& a, const Candidate& b);

  double Gather(std::span<const float> logits, float least_weight);
  void KeepTopK(size_t k);
  void KeepTopP(double wanted_weight);
  TokenId DrawFromAll(double wanted_weight) const;

  std::vector<float> weights_;          // proportional to the probability; the largest is 1
  bool keeps_all_ = false;              // no limit: weights_ is the distribution
  std::vector<Candidate> candidates_;   // else: what is kept, in ascending ids
  std::vector<double> bucket_weights_;  // scratch for top_p
  std::vector<Candidate> by_weight_;    // scratch: some of them, most likely first
  double total_weight_ = 0;             // of what is kept
};

}  // namespace tandem
