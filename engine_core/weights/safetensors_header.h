#pragma once

// The table of contents of a safetensors file: 8 bytes little-endian header length, a JSON object
// of {name: {dtype, shape, data_offsets}}, then the data. Thread: any; pure. Failure: every length,
// offset, shape and dtype is checked against the size of the file; the Status names the tensor.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"

namespace tandem {

struct SafetensorsEntry {
  std::string dtype;  // "F32", "BF16", ...: of those that the format has
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // into the data
};

struct SafetensorsHeader {
  uint64_t data_begin = 0;
  std::map<std::string, SafetensorsEntry, std::less<>> entries;

  // The bytes of a tensor of the file.
  std::span<const std::byte> DataOf(const SafetensorsEntry& entry,
                                    std::span<const std::byte> file) const {
    return file.subspan(data_begin + entry.begin, entry.end - entry.begin);
  }
};

// file: all of its bytes.
StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file);

}  // namespace tandem
