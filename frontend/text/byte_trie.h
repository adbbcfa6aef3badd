#pragma once

// Finds which of a set of byte strings a text begins with. Thread: immutable after construction;
// any thread. Cost: a few nanoseconds for each byte looked at; memory about 10 bytes for each node.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

class ByteTrie {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  ByteTrie() = default;
  // Of equal keys the last one's value counts. REQUIRES keys that are not empty, values >= 0.
  explicit ByteTrie(const std::vector<std::pair<std::string, int32_t>>& entries);

  static constexpr uint32_t root() { return 0; }
  uint32_t Child(uint32_t node, char byte) const;               // kNone: no key goes on so
  int32_t Value(uint32_t node) const { return values_[node]; }  // -1: no key ends here
  bool empty() const { return values_.size() < 2; }

  // Value and length of the longest key that text begins with; value -1 when there is none.
  std::pair<int32_t, size_t> Longest(std::string_view text) const;

 private:
  std::vector<int32_t> values_ = {-1};
  std::vector<uint32_t> first_child_ = {1, 1};  // of a node; the next node's is its end
  std::vector<unsigned char> labels_ = {0};     // the byte that leads to a node
  std::array<uint32_t, 256> root_children_ = {};
};

}  // namespace tandem
