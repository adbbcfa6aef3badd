#pragma once

// Where in the mask memory the mask of a slot's request is written: a row, and one after it for
// each draft. A process that is late with a mask may still write it when its slot is another
// request's; so that place is set aside until the process has answered or is gone, and the slot
// gets a spare one. Thread: engine loop. Failure: a slot without a place, while no spare is left.

#include <cstdint>
#include <vector>

#include "common/ids.h"

namespace tandem {

class MaskPlaces {
 public:
  // rows_each: of a place. As many spare ones as there are slots.
  MaskPlaces(int32_t num_slots, int32_t rows_each);
  static int32_t NumRows(int32_t num_slots, int32_t rows_each) { return 2 * num_slots * rows_each; }

  // The first row of the slot's place; kNone.
  int32_t RowOf(RequestSlot slot) const { return rows_[Index(slot)]; }
  // False: it is not the slot's place any more.
  bool SetAside(RequestSlot slot, int32_t row);
  // A place that was set aside is this slot's from now on; or a spare one again.
  void Give(RequestSlot slot, int32_t row);
  void Release(int32_t row);

  size_t num_spares() const { return spares_.size(); }

  static constexpr int32_t kNone = -1;

 private:
  static size_t Index(RequestSlot slot) { return static_cast<size_t>(tandem::Index(slot)); }

  std::vector<int32_t> rows_;  // by slot
  std::vector<int32_t> spares_;
};

}  // namespace tandem
