#pragma once

// Rows of logits with everything that decides a sample, for tests that compare the host's sampler,
// the device's on an emulated device, and oracles of their own.
// Thread: the test's. What must not happen fails the test.

#include <deque>
#include <memory>
#include <vector>

#include "engine_core/sampling/sampler.h"
#include "kernels/backend.h"
#include "tests/support/kernels/kernel_cases.h"

namespace tandem {

// A request of which one token is sampled, or scored.
struct SamplerCase {
  SamplingConfig config;
  TokenId scored_token_id = -1;
  std::vector<TokenId> prompt_ids, output_ids;
  std::vector<float> logits;
  std::vector<int32_t> token_mask = {};  // empty: all tokens are allowed
  int32_t position = 0;
  TokenId draft_token_id = -1;  // SamplingRow's; the row before is in the same slot
};

struct Sampled {
  SampledToken token;
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
};

// By the host's sampler. A row without a token, or with NaN: token_id -1.
Sampled HostSample(const SamplerCase& row);

// A sampler on an emulated device.
class EmulatedSampler {
 public:
  EmulatedSampler(int64_t vocab_size, int64_t num_slots);

  void Admit(int32_t slot, const SamplerCase& row);
  // Row i of the batch is in slot slots[i]; each half of the rows is followed by an unused one, but
  // not where the second begins after a draft.
  std::vector<Sampled> Sample(const std::vector<SamplerCase>& rows,
                              const std::vector<int32_t>& slots);
  // The same in two steps; TakeSampled returns the results of the oldest first.
  void StartSample(const std::vector<SamplerCase>& rows, const std::vector<int32_t>& slots);
  std::vector<Sampled> TakeSampled(const std::vector<SamplerCase>& rows);
  // Row i in slot i.
  std::vector<Sampled> AdmitAndSample(const std::vector<SamplerCase>& rows);

  std::vector<TokenId> Filled(std::vector<TokenId> ids);

 private:
  // The device's memory of one call, and what its logits must be after it.
  struct Started {
    OwnedTensor logits, numbers, masks;
    std::vector<float> logits_after;
  };

  int64_t vocab_size_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<DeviceSampler> sampler_;
  std::deque<Started> started_;
};

// How far, as a share of the mass, the random number is from the nearest border between tokens, or
// top_p from the nearest border of a nucleus. From the definitions, over sorted tokens.
double DistanceToBoundary(const SamplerCase& row);

// Equal tokens, or a boundary; equal logprobs where the tokens are. False: a boundary.
bool CheckSameSample(const SamplerCase& row, const Sampled& device, const Sampled& host);

template <class T>
T OneOf(Draw& draw, std::initializer_list<T> values) {
  return values.begin()[draw.Int(0, static_cast<int>(values.size()) - 1)];
}

std::vector<TokenId> RandomTokens(Draw& draw, int vocab, int count);

// Any mix of parameters that the device takes, over flat or steep logits. No token mask.
SamplerCase RandomCase(Draw& draw, int vocab);

}  // namespace tandem
