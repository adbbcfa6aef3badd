#pragma once

// The images of a request: where they stand in its prompt, and what a vision tower takes of them.
// Values that nobody changes once they are made; the request, its steps and the worker share them.
// Positions are the prompt's.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine_core/kv_cache/extra_keys.h"

namespace tandem {

struct ImageInput {
  // Neighbouring positions whose tokens the tower's rows replace.
  struct Run {
    int32_t begin = 0;
    int32_t num_rows = 0;
    int32_t end() const { return begin + num_rows; }
  };

  std::string identifier;  // of its content
  // Of its rows where they are kept. Images of one identifier have the same rows; that their number
  // is part of the key keeps a sender that breaks this rule from reading beyond them.
  std::string key;
  int32_t begin = 0;  // of its place in the prompt, which may have tokens around the rows
  int32_t num_tokens = 0;
  std::vector<Run> runs;  // by position, inside the place; their rows in this order
  int32_t num_rows = 0;
  int32_t grid_t = 1, grid_h = 1, grid_w = 1;  // in patches; 1, 1, 1: the model has no grid
  int32_t num_slices = 1;                      // that a tower's work for it is cut into
  std::vector<int64_t> shape;                  // of pixels
  std::vector<float> pixels;                   // row-major; none in a replay

  int32_t end() const { return begin + num_tokens; }
  // Whether a position in [from, to) takes a row.
  bool HasRowsIn(int32_t from, int32_t to) const {
    return std::ranges::any_of(runs,
                               [=](const Run& run) { return run.begin < to && from < run.end(); });
  }
};

using RequestImages = std::vector<std::shared_ptr<const ImageInput>>;  // by position, apart

// Of their pixels, also where a replay lacks them.
inline int64_t NumBytes(const RequestImages& images) {
  int64_t num_bytes = 0;
  for (const auto& image : images) {
    int64_t num_pixels = 1;
    for (const int64_t size : image->shape) num_pixels *= size;
    num_bytes += num_pixels * int64_t{sizeof(float)};
  }
  return num_bytes;
}

// Their keys in block hashes. images: null: none.
inline std::vector<MultimodalItem> ItemsOf(const RequestImages* images) {
  std::vector<MultimodalItem> items;
  if (images == nullptr) return items;
  for (const auto& image : *images) {
    items.push_back({image->identifier, image->begin, image->num_tokens});
  }
  return items;
}

}  // namespace tandem
