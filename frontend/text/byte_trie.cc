#include "frontend/text/byte_trie.h"

#include <algorithm>

namespace tandem {

ByteTrie::ByteTrie(const std::vector<std::pair<std::string, int32_t>>& entries) {
  std::vector<std::pair<std::string_view, int32_t>> sorted(entries.begin(), entries.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Breadth first, so that the children of a node lie beside each other. A node is the range of
  // keys that begin with its bytes.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, sorted.size(), 0}};
  first_child_.clear();
  for (size_t node = 0; node < ranges.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    first_child_.push_back(static_cast<uint32_t>(ranges.size()));
    for (; begin < end && sorted[begin].first.size() == depth; ++begin) {
      values_[node] = sorted[begin].second;
    }
    while (begin < end) {
      const char label = sorted[begin].first[depth];
      size_t next = begin;
      while (next < end && sorted[next].first[depth] == label) ++next;
      ranges.push_back({begin, next, depth + 1});
      values_.push_back(-1);
      labels_.push_back(static_cast<unsigned char>(label));
      begin = next;
    }
  }
  first_child_.push_back(static_cast<uint32_t>(ranges.size()));
  root_children_.fill(kNone);
  for (uint32_t child = first_child_[0]; child < first_child_[1]; ++child) {
    root_children_[labels_[child]] = child;
  }
}

uint32_t ByteTrie::Child(uint32_t node, char byte) const {
  const auto label = static_cast<unsigned char>(byte);
  if (node == root()) return empty() ? kNone : root_children_[label];
  const auto begin = labels_.begin() + first_child_[node];
  const auto end = labels_.begin() + first_child_[node + 1];
  const auto it =
      end - begin > 8 ? std::lower_bound(begin, end, label) : std::find(begin, end, label);
  if (it == end || *it != label) return kNone;
  return static_cast<uint32_t>(it - labels_.begin());
}

std::pair<int32_t, size_t> ByteTrie::Longest(std::string_view text) const {
  std::pair<int32_t, size_t> longest = {-1, 0};
  uint32_t node = root();
  for (size_t i = 0; i < text.size(); ++i) {
    node = Child(node, text[i]);
    if (node == kNone) break;
    if (Value(node) >= 0) longest = {Value(node), i + 1};
  }
  return longest;
}

}  // namespace tandem
