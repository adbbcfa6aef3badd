#pragma once

// How many tokens and requests a step has where no flag says so, as vLLM 0.33 chooses them
// (EngineArgs.get_batch_defaults): large devices want large steps, and work that nobody waits for
// larger ones. Pure; any thread.

#include <cstdint>
#include <optional>

#include "kernels/cuda_facts.h"

namespace tandem {

struct BatchDefaults {
  int64_t max_num_batched_tokens;
  int64_t max_num_seqs;
};

// cuda: the device, nullopt on a host's CPUs. offline: batches of a file and the like, no server.
// prefers_throughput: both doubled (--performance-mode throughput).
BatchDefaults BatchDefaultsFor(const std::optional<CudaFacts>& cuda, bool offline,
                               bool prefers_throughput);

}  // namespace tandem
