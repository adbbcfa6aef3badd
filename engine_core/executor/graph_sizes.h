#pragma once

// The batch sizes for which decode steps are captured as graphs, as vLLM 0.33 chooses them, and the
// size that a batch is padded to. Sizes lie closest among small batches, where padding costs most.
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
  std::vector<int64_t> sizes = {};       // exactly these, without those that no step can have
};

// Ascending and distinct; none for max_size 0.
std::vector<int64_t> GraphSizes(const GraphSizeOptions& options);

// Index of the smallest size of at least `num_requests`; nullopt: all are smaller.
std::optional<size_t> GraphSizeFor(std::span<const int64_t> sizes, int64_t num_requests);

}  // namespace tandem
