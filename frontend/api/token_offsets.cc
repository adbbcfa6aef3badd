#include "frontend/api/token_offsets.h"

#include <algorithm>

#include "common/utf8.h"

namespace tandem {

std::optional<std::vector<std::pair<size_t, size_t>>> TokenOffsets(const Tokenizer& tokenizer,
                                                                   std::span<const TokenId> ids,
                                                                   std::string_view text) {
  std::vector<std::pair<size_t, size_t>> offsets;
  offsets.reserve(ids.size());
  size_t num_characters = 0;  // that have begun
  for (const TokenId id : ids) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    if (bytes.empty() || !text.starts_with(bytes)) {
      if (!tokenizer.IsSpecial(id)) return std::nullopt;
      offsets.emplace_back(0, 0);
      continue;
    }
    text.remove_prefix(bytes.size());
    const size_t begin = num_characters - (IsUtf8Continuation(bytes[0]) ? 1 : 0);
    num_characters += static_cast<size_t>(
        std::ranges::count_if(bytes, [](char byte) { return !IsUtf8Continuation(byte); }));
    offsets.emplace_back(begin, num_characters);
  }
  if (!text.empty()) return std::nullopt;
  return offsets;
}

}  // namespace tandem
