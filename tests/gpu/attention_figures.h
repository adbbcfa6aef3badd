#pragma once

// Times of PagedAttention alone, in the shape of an 8B model's layer. Thread: the caller's.

#include "kernels/backend.h"

namespace tandem {

struct AttentionFigures {
  double decode_seconds = 0;  // of one query per request
  double decode_bytes = 0;    // of keys and values to read
  double prefill_seconds = 0;
  double prefill_flops = 0;  // under the causal mask
};

AttentionFigures MeasureAttention(Backend* backend, bool is_tiny);

}  // namespace tandem
