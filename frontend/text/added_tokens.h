#pragma once

// Finds added tokens ("<|im_end|>", "[INST]") in text before it is split or encoded: the longest
// token at the leftmost place, with its lstrip, rstrip and single_word flags.
// Thread: immutable after construction; any thread. Positions are bytes.
// Cost: linear in the text for real tokens; a trie bounds the search at one place.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/ids.h"

namespace tandem {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool single_word = false;  // only where no word character stands beside it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = true;    // searched for in normalized text
  bool special = false;
};

class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  // Tokens with empty content are never found.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  // A part of the text that is an added token (id >= 0) or is not.
  struct Part {
    TokenId id;
    std::string_view text;
  };
  // Appends the parts of text in order; those that are no token are not empty. REQUIRES well-formed
  // UTF-8.
  void Split(std::string_view text, std::vector<Part>* parts) const;

 private:
  int32_t LongestAt(std::string_view text, size_t pos) const;  // index of a token or -1

  std::vector<AddedToken> tokens_;
  // Trie: child of (node << 8 | byte). Node 0 is the root; token_of_node_ is -1 inside.
  absl::flat_hash_map<uint64_t, uint32_t> children_;
  std::vector<int32_t> token_of_node_ = {-1};
  bool starts_[256] = {};  // bytes that begin a token
};

}  // namespace tandem
