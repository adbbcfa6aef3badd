#pragma once

// Which characters of a prompt's text each of its tokens stands for. Pure; any thread.

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "frontend/text/tokenizer.h"

namespace tandem {

// [begin, end) of each token, in characters; a character in pieces counts for each of its tokens.
// A special token that the text does not show stands for none; a blank that the tokenizer puts
// before the text belongs to the first character. Blanks are trimmed where the post-processor asks
// for it, by the rule of the `tokenizers` library. nullopt: the bytes of the tokens are not the
// text, because the tokenizer changes it or the prompt was cut.
std::optional<std::vector<std::pair<size_t, size_t>>> TokenOffsets(const Tokenizer& tokenizer,
                                                                   std::span<const TokenId> ids,
                                                                   std::string_view text);

}  // namespace tandem
