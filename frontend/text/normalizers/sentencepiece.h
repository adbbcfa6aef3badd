#pragma once

// What a tokenizer.model says about normalizing text, and the normalizer that does it.
// Thread: immutable; any thread.

#include <memory>

#include "frontend/text/byte_trie.h"
#include "frontend/text/charsmap.h"
#include "frontend/text/normalizers/normalizer_step.h"

namespace tandem {

struct SentencePieceRules {
  Charsmap map;
  ByteTrie user_symbols;  // left as they are
  bool add_dummy_prefix = true;
  bool remove_extra_blanks = true;
  bool escape_blanks = true;     // a blank becomes U+2581
  bool blank_is_suffix = false;  // the dummy prefix stands at the end
};

std::unique_ptr<NormalizerStep> NewSentencePieceNormalizer(SentencePieceRules rules);

}  // namespace tandem
