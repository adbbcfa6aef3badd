#pragma once

// Where the parts of a panel of integers lie. Values, any thread. Sizes are in units of 4 bytes.

#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/quantization.h"

namespace tandem {

inline constexpr int64_t kCodeSteps = 8;  // k of one step of an int4 panel

struct QuantizedPanelShape {
  int64_t k_units = 0;      // of 4 k, as activations have them
  int64_t group_steps = 0;  // 0: int8
  int64_t panel_units = 0;

  QuantizedPanelShape(int64_t k, WeightFormat format)
      : group_steps(GroupSize(format) / kCodeSteps) {
    if (group_steps == 0) {
      k_units = (k + 3) / 4;
      panel_units = k_units * kPanelColumns;
    } else {
      const int64_t steps = (k + kCodeSteps - 1) / kCodeSteps;
      k_units = 2 * steps;
      const int64_t groups = (steps + group_steps - 1) / group_steps;
      panel_units = groups * kPanelColumns / 4 + steps * kPanelColumns;
    }
  }

  // From the panel's begin to the 64 bytes of group `group`, and to its codes.
  int64_t GroupBytes(int64_t group) const {
    return group * (kPanelColumns + group_steps * 4 * kPanelColumns);
  }
  int64_t CodeBytes(int64_t step) const {
    return GroupBytes(step / group_steps) + kPanelColumns + step % group_steps * 4 * kPanelColumns;
  }
};

}  // namespace tandem
