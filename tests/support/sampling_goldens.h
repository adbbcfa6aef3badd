#pragma once

// The distributions that vLLM's sampler gave for 64 sets of parameters (tests/golden/sampling).
// Thread: the test's. Values; a file that cannot be read ends the test.

#include <vector>

#include "engine_core/sampling/penalties.h"
#include "kernels/sampling_config.h"

namespace tandem {

struct SamplingGolden {
  int index = 0;
  SamplingConfig config;
  std::vector<TokenId> prompt_ids, output_ids;
  std::vector<float> logits, probs;
  TokenId argmax = 0;
  std::vector<TokenId> raw_top5_ids;
  std::vector<float> raw_top5_logprobs;
  TokenCounts counts;
};

std::vector<SamplingGolden> ReadSamplingGoldens();

}  // namespace tandem
