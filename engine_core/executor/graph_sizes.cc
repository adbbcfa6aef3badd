#include "engine_core/executor/graph_sizes.h"

#include <algorithm>

namespace tandem {

std::vector<int64_t> GraphSizes(const GraphSizeOptions& options) {
  constexpr int64_t kDefaultMax = 512, kFineEnd = 256, kFineStep = 8, kCoarseStep = 16;
  const int64_t max =
      std::min(options.max_size.value_or(std::min(2 * options.max_num_seqs, kDefaultMax)),
               options.max_num_batched_tokens);
  std::vector<int64_t> sizes = options.sizes;
  if (sizes.empty()) {
    sizes = {1, 2, 4, options.max_num_batched_tokens, options.max_num_seqs};
    for (int64_t size = kFineStep; size < kFineEnd; size += kFineStep) sizes.push_back(size);
    for (int64_t size = kFineEnd; size <= max; size += kCoarseStep) sizes.push_back(size);
    std::erase_if(sizes, [max](int64_t size) { return size > max; });
  }
  std::erase_if(sizes,
                [&](int64_t size) { return size < 1 || size > options.max_num_batched_tokens; });
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::optional<size_t> GraphSizeFor(std::span<const int64_t> sizes, int64_t num_requests) {
  const auto found = std::ranges::lower_bound(sizes, num_requests);
  if (found == sizes.end()) return std::nullopt;
  return static_cast<size_t>(found - sizes.begin());
}

}  // namespace tandem
