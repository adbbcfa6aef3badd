#include "frontend/metrics/exemplars.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace tandem {

Exemplars::Exemplars(Buckets bounds)
    : bounds_(std::move(bounds)), slots_(std::make_unique<Slot[]>(bounds_.size() + 1)) {}

void Exemplars::Add(const Exemplar& exemplar) {
  const auto bucket = std::ranges::lower_bound(bounds_, exemplar.value) - bounds_.begin();
  Slot& slot = slots_[static_cast<size_t>(bucket)];
  uint64_t version = slot.version.load(std::memory_order_relaxed);
  const bool is_mine = version % 2 == 0 && slot.version.compare_exchange_strong(
                                               version, version + 1, std::memory_order_acq_rel);
  if (!is_mine) return;
  // Readers that see one of the words see the odd version too.
  const std::array<uint64_t, 4> words = {exemplar.trace_id.high, exemplar.trace_id.low,
                                         std::bit_cast<uint64_t>(exemplar.value),
                                         std::bit_cast<uint64_t>(exemplar.unix_time)};
  for (size_t i = 0; i < words.size(); ++i) {
    slot.words[i].store(words[i], std::memory_order_release);
  }
  slot.version.store(version + 2, std::memory_order_release);
}

std::optional<Exemplar> Exemplars::Read(size_t bucket) const {
  const Slot& slot = slots_[bucket];
  constexpr int kTries = 100;  // a writer is done in nanoseconds unless its thread was stopped
  for (int i = 0; i < kTries; ++i) {
    const uint64_t version = slot.version.load(std::memory_order_acquire);
    if (version == 0) return std::nullopt;
    std::array<uint64_t, 4> words;
    for (size_t w = 0; w < words.size(); ++w) {
      words[w] = slot.words[w].load(std::memory_order_acquire);
    }
    if (version % 2 == 1 || slot.version.load(std::memory_order_relaxed) != version) continue;
    return Exemplar{
        {words[0], words[1]}, std::bit_cast<double>(words[2]), std::bit_cast<double>(words[3])};
  }
  return std::nullopt;
}

}  // namespace tandem
