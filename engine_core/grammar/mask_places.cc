#include "engine_core/grammar/mask_places.h"

#include <algorithm>

namespace tandem {

MaskPlaces::MaskPlaces(int32_t num_slots, int32_t rows_each) {
  for (int32_t i = 0; i < num_slots; ++i) {
    rows_.push_back(i * rows_each);
    // The one that was free last is taken first, so that memory stays as small as it can.
    spares_.push_back((2 * num_slots - 1 - i) * rows_each);
  }
}

bool MaskPlaces::SetAside(RequestSlot slot, int32_t row) {
  int32_t& own = rows_[Index(slot)];
  if (own != row) return false;
  own = kNone;
  if (!spares_.empty()) {
    own = spares_.back();
    spares_.pop_back();
  }
  return true;
}

void MaskPlaces::Give(RequestSlot slot, int32_t row) {
  const int32_t before = rows_[Index(slot)];
  rows_[Index(slot)] = row;
  if (before != kNone) Release(before);
}

void MaskPlaces::Release(int32_t row) {
  const auto without = std::ranges::find(rows_, kNone);
  if (without != rows_.end()) {
    *without = row;
  } else {
    spares_.push_back(row);
  }
}

}  // namespace tandem
