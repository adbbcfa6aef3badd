#pragma once

// Token ids of stretches of text that were encoded before: the earlier turns of a chat that grows,
// a system prompt that many chats share. The tokenizer asks for each stretch between two added
// tokens, whose ids depend on its text alone, so ids from here are those of encoding anew.
// Thread: any, and none ever waits: a call that finds another thread inside finds nothing and keeps
// nothing.
// Ownership: owns copies of texts and ids, at most max_bytes; the longest unused goes first.

#include <atomic>
#include <cstddef>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/ids.h"
#include "frontend/text/vocabulary.h"

namespace tandem {

class EncodedTextCache {
 public:
  // Shorter stretches are encoded faster than found.
  static constexpr size_t kMinTextBytes = 128;

  explicit EncodedTextCache(size_t max_bytes) : max_bytes_(max_bytes) {}
  EncodedTextCache(const EncodedTextCache&) = delete;

  // Appends the text's ids and returns true when they are known. at_start: the stretch begins a
  // text, which some tokenizers encode differently.
  bool Find(std::string_view text, bool at_start, std::vector<TokenId>* ids);
  void Insert(std::string_view text, bool at_start, std::span<const TokenId> ids);

  size_t num_bytes() const { return num_bytes_; }  // not while another thread is inside

 private:
  struct Entry {
    std::string text;
    bool at_start;
    std::vector<TokenId> ids;
  };
  using Entries = std::list<Entry>;  // the most recently used first
  using Index =
      absl::flat_hash_map<std::string_view, Entries::iterator, StringViewHash, std::equal_to<>>;
  class Visit;

  static size_t BytesOf(const Entry& entry);
  Index& index(bool at_start) { return at_start ? starts_ : others_; }
  void EvictTo(size_t num_bytes);

  const size_t max_bytes_;
  std::atomic<bool> occupied_ = false;
  Entries entries_;
  Index starts_;
  Index others_;
  size_t num_bytes_ = 0;
};

}  // namespace tandem
