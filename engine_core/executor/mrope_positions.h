#pragma once

// M-RoPE's positions of a request's tokens: a token of a text has one number three times; a row of
// an image has the number at which the image begins as its time, and that number plus its row and
// column in the image as height and width. The token after an image goes on after the largest
// number in it. So positions after an image are smaller than places in the sequence, by the same
// difference up to the next image, and for all outputs.
// Pure. Source: Wang et al. 2024 (Qwen2-VL).

#include <cstdint>
#include <span>

#include "engine_core/scheduler/request_images.h"

namespace tandem {

struct MropeRows {
  std::span<int32_t> time, height, width;  // of as many tokens each
};

// Fills in the tokens from the place `begin` on. images: null: none. REQUIRES: an image has one run
// of rows, a square of merge_size patches each way for each.
void FillMropePositions(const RequestImages* images, int32_t merge_size, int32_t begin,
                        const MropeRows& rows);

}  // namespace tandem
