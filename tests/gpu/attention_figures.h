#pragma once

// Times of PagedAttention alone, in the shape of a layer of an 8B model and of a vision tower.
// Thread: the caller's.

#include <vector>

#include "kernels/backend.h"

namespace tandem {

// Of one query per request.
struct DecodeFigure {
  int64_t num_requests = 0, context = 0;
  double seconds = 0;
  double bytes = 0;  // of keys and values to read
};

struct AttentionFigures {
  std::vector<DecodeFigure> decodes;
  double prefill_seconds = 0;
  double prefill_flops = 0;  // under the causal mask
  double tower_seconds = 0;  // of patches that see each other
  double tower_flops = 0;
};

AttentionFigures MeasureAttention(Backend* backend, bool is_tiny);

}  // namespace tandem
