#pragma once

// Turns one request's stream of token ids into text, whole characters only.
// Thread: one at a time (the shard that owns the stream). Borrows the Tokenizer, which must outlive
// it. Append never fails: unknown ids add nothing, bytes that never become a character are U+FFFD.
// Cost: constant amortized work for each token.
// The concatenation of all deltas and Flush is Decode() of the prompt's tail and the ids, from the
// character on that the tail leaves unfinished. One thing differs, because a delta cannot be taken
// back: a character that a run of byte tokens (<0xNN>) has completed stays, where Decode() gives up
// the whole run when a later byte of it is wrong (ByteRuns).
// Text is held back while it ends in an unfinished character or in U+FFFD, as `tokenizers`'
// DecodeStream does; at most kMaxHeldBytes of it.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

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

  // prompt_tail: the prompt's last tokens (a handful is enough); a character that the prompt leaves
  // unfinished is completed, and shown, by the first deltas.
  Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options,
              std::span<const TokenId> prompt_tail);

  // Appends to *text what the token makes certain; often a word, sometimes nothing.
  void Append(TokenId id, std::string* text);
  // Appends what is still held back; the stream ends here.
  void Flush(std::string* text);

 private:
  bool IsShown(TokenId id) const;
  void AppendAsSpelled(TokenId id);
  // No later token can change the text that the stream has made.
  bool IsSure(std::string_view held) const;

  const Tokenizer& tokenizer_;
  DetokenizerOptions options_;
  TokenStream stream_;
  std::string held_;
  bool last_was_added_ = false;
};

}  // namespace tandem
