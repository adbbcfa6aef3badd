#pragma once

// Images of random pixels for requests. Pure: the same numbers give the same bytes. The PNG is not
// compressed, as noise would not be either.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

// Images of one size, and how often it is drawn, relative to the others.
struct ImageBucket {
  int64_t height = 0, width = 0;
  double weight = 0;
};

// "{(256, 256, 1): 0.5, (720, 1280, 1): 0.5}": height, width and 1 frame, as vLLM writes them.
// Those of weight 0 are left out. INVALID_ARGUMENT for other text, and for videos.
StatusOr<std::vector<ImageBucket>> ParseImageBuckets(std::string_view text);

std::string RandomPng(int64_t height, int64_t width, uint64_t seed);
// The same as a data: URL.
std::string RandomImageUrl(int64_t height, int64_t width, uint64_t seed);

}  // namespace tandem
