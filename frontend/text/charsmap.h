#pragma once

// SentencePiece's table of character replacements (`precompiled_charsmap`): a double-array trie
// over the bytes of what is replaced and a block of what replaces it. Thread: immutable after
// Create; any thread. Owns a copy of the table; results are views of it. Create: InvalidArgument
// when the table is not one. A damaged one finds wrong texts, nothing else. Format: u32 size of the
// trie in bytes, the trie as little-endian u32, then texts that end in NUL. Source of the trie's
// layout: Darts (Taku Kudo) and its clone by Susumu Yata.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

class Charsmap {
 public:
  static StatusOr<Charsmap> Create(std::string_view bytes);  // empty: replaces nothing

  struct Match {
    size_t size;  // bytes of the text
    std::string_view replacement;
  };
  // What the start of text is replaced by: the shortest entry that it begins with, or the longest.
  std::optional<Match> Shortest(std::string_view text) const { return Find(text, true); }
  std::optional<Match> Longest(std::string_view text) const { return Find(text, false); }

 private:
  std::optional<Match> Find(std::string_view text, bool first) const;
  std::string_view TextAt(uint32_t offset) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace tandem
