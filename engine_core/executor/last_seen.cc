#include "engine_core/executor/last_seen.h"

#include <algorithm>
#include <numeric>

namespace tandem {

void FillLastSeen(const RequestImages* images, int32_t begin, std::span<int32_t> last_seen) {
  std::iota(last_seen.begin(), last_seen.end(), begin);
  if (images == nullptr) return;
  const int32_t end = begin + static_cast<int32_t>(last_seen.size());
  for (const auto& image : *images) {
    for (const ImageInput::Run& run : image->runs) {
      for (int32_t p = std::max(begin, run.begin); p < std::min(end, run.end()); ++p) {
        last_seen[static_cast<size_t>(p - begin)] = run.end() - 1;
      }
    }
  }
}

}  // namespace tandem
