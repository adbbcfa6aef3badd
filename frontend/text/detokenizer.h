#pragma once

// Turns one request's stream of token ids into text, whole characters only.
// Thread: one at a time (the shard that owns the stream). Borrows the Tokenizer, which must outlive
// it. Append never fails: unknown ids add nothing, bytes that never become a character are U+FFFD.
// Text is held back while the bytes so far end in an unfinished or wrong character (or in a real
// U+FFFD, which looks the same), as `tokenizers`' DecodeStream does; at most kMaxHeldBytes of it.
// The concatenation of all deltas and Flush is Decode() of the same ids.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/ids.h"
#include "frontend/text/tokenizer.h"

namespace tandem {

struct DetokenizerOptions {
  bool skip_special_tokens = true;
  // False: of two added tokens in a row the second is written as the vocabulary spells it.
  bool spaces_between_special_tokens = true;
};

class Detokenizer {
 public:
  static constexpr size_t kMaxHeldBytes = 256;
  static constexpr size_t kMaxHeldTokens = 64;  // where bytes are not known, but tokens are

  // prompt_tail: the prompt's last tokens (a handful is enough); a character that the prompt leaves
  // unfinished is completed, and shown, by the first deltas.
  Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options,
              std::span<const TokenId> prompt_tail);

  // Appends to *text what the token makes certain; often a word, sometimes nothing.
  void Append(TokenId id, std::string* text);
  // Appends what is still held back; the stream ends here.
  void Flush(std::string* text);

 private:
  void AppendBytes(std::string_view bytes, std::string* text);
  void AppendByWindow(TokenId id, std::string* text);

  const Tokenizer& tokenizer_;
  DetokenizerOptions options_;
  std::string held_;  // bytes not shown yet (byte-level)
  // Otherwise the last tokens are decoded with and without the new one and the difference is shown.
  std::vector<TokenId> window_;
  std::string prefix_;  // text of window_ up to prefix_idx_: shown already
  size_t prefix_idx_ = 0;
  bool last_was_added_ = false;
};

}  // namespace tandem
