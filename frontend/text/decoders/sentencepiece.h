#pragma once

// How a tokenizer.model turns tokens into text. Thread: immutable; any thread.

#include <string>

#include "frontend/text/decoders/decoder_step.h"

namespace tandem {

struct SentencePieceDecoding {
  bool drops_first_blank = true;  // that of the dummy prefix
  bool drops_all_blanks = false;  // at the start of the text, as with remove_extra_whitespaces
  std::string unknown_piece = "<unk>";
  std::string unknown_text = " \u2047 ";  // shown for it
};

std::unique_ptr<DecoderStep> NewSentencePieceDecoder(SentencePieceDecoding decoding);

}  // namespace tandem
