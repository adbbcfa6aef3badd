#pragma once

// A run of rows, columns, heads or layers. Values, any thread.

#include <cstdint>

namespace tandem {

// [begin, begin + count)
struct Slice {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t end() const { return begin + count; }
  Slice Shifted(int64_t by) const { return {begin + by, count}; }
  bool operator==(const Slice&) const = default;
};

}  // namespace tandem
