#pragma once

// Strings by id and ids by string. Filled once, then immutable and safe on any thread.
// Ownership: all bytes lie in one block; views live as long as the Vocabulary.
// Ids without a string have an empty one and are not found by Contains.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/ids.h"

namespace tandem {

// Debian's Abseil has a string_view of its own and cannot look up ours without help.
struct StringViewHash {
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

class Vocabulary {
 public:
  Vocabulary() = default;
  // Of equal strings the first is found by Find. REQUIRES ids >= 0 and of a size worth a table.
  explicit Vocabulary(const std::vector<std::pair<TokenId, std::string>>& entries);
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  TokenId size() const { return static_cast<TokenId>(entries_.size()); }  // largest id + 1
  bool Contains(TokenId id) const { return id >= 0 && id < size() && entries_[id].offset >= 0; }
  std::string_view Text(TokenId id) const;  // empty when not contained
  std::optional<TokenId> Find(std::string_view text) const;

 private:
  struct Entry {
    int32_t offset = -1;
    int32_t length = 0;
  };
  // A vector, not a string: moving it leaves the bytes where the index points.
  std::vector<char> bytes_;
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string_view, TokenId, StringViewHash, std::equal_to<>> index_;
};

}  // namespace tandem
