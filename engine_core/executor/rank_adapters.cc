#include "engine_core/executor/rank_adapters.h"

#include <utility>

#include "common/check.h"

namespace tandem {

std::span<const SharedAdapter> RankAdapters::Of(std::span<const int64_t> numbers) {
  if (changes_.Drain(&new_changes_)) {
    for (Change& change : new_changes_) {
      if (change.adapter == nullptr) {
        adapters_.erase(change.number);
      } else {
        adapters_[change.number] = std::move(change.adapter);
      }
    }
  }
  of_step_.clear();
  for (const int64_t number : numbers) {
    const auto found = adapters_.find(number);
    CHECK(found != adapters_.end()) << "no adapter " << number;
    of_step_.push_back(found->second);
  }
  return of_step_;
}

}  // namespace tandem
