#pragma once

// For which batch sizes decode steps are captured as graphs, and which of them serves a batch: the
// sizes that vLLM 0.33 chooses. A batch is padded to the next size, so small steps cost little
// padding where padding costs most.
// Thread: any; pure. Units: requests, of one token each.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tandem {

struct GraphSizeOptions {
  int64_t max_num_seqs = 0;
  int64_t max_num_batched_tokens = 0;
  std::optional<int64_t> max_size = {};  // in place of the default, twice max_num_seqs up to 512
  std::vector<int64_t> sizes = {};       // exactly these, as far as a step can have them
};

// Ascending, each once; none for max_size 0.
std::vector<int64_t> GraphSizes(const GraphSizeOptions& options);

// Index of the smallest size that holds `num_requests`; nothing: none does.
std::optional<size_t> GraphSizeFor(std::span<const int64_t> sizes, int64_t num_requests);

}  // namespace tandem
