#pragma once

// Strings by id (TokenTexts), and ids by string too (Vocabulary). Filled once, then immutable and
// safe on any thread. Ownership: all bytes lie in one block; views live as long as the object.
// Ids without a string have an empty one and Contains is false for them.

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

using TokenList = std::vector<std::pair<TokenId, std::string>>;

class TokenTexts {
 public:
  TokenTexts() = default;
  // Of entries with one id the last counts.
  // REQUIRES ids >= 0 and of a size worth a table.
  explicit TokenTexts(const TokenList& entries);
  TokenTexts(TokenTexts&&) = default;
  TokenTexts& operator=(TokenTexts&&) = default;

  TokenId size() const { return static_cast<TokenId>(entries_.size()); }  // largest id + 1
  bool Contains(TokenId id) const { return id >= 0 && id < size() && entries_[id].offset >= 0; }
  std::string_view Text(TokenId id) const;  // empty when not contained

 protected:
  // Those of all entries, in their order.
  std::string_view all_bytes() const { return {bytes_.data(), bytes_.size()}; }

 private:
  struct Entry {
    int32_t offset = -1;
    int32_t length = 0;
  };
  // A vector, not a string: moving it leaves the bytes in place, where views point.
  std::vector<char> bytes_;
  std::vector<Entry> entries_;
};

class Vocabulary : public TokenTexts {
 public:
  Vocabulary() = default;
  // Of equal strings Find returns the first. REQUIRES as for TokenTexts.
  explicit Vocabulary(const TokenList& entries);

  std::optional<TokenId> Find(std::string_view text) const;

 private:
  absl::flat_hash_map<std::string_view, TokenId, StringViewHash, std::equal_to<>> index_;
};

// "<0xNN>", the token that stands for a byte where the vocabulary spells characters.
std::string ByteTokenText(unsigned char byte);

}  // namespace tandem
