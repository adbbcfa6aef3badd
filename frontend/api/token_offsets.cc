#include "frontend/api/token_offsets.h"

#include <algorithm>

#include "common/utf8.h"
#include "frontend/text/tokenizer_file.h"

namespace tandem {
namespace {

using Range = std::pair<size_t, size_t>;

// bytes: of the whole token. A single blank at the start of the text stays with add_prefix_space,
// which may have put it there, whether it did or not.
void Trim(const OffsetTrim& trim, std::string_view bytes, Range* range) {
  size_t leading = std::min(bytes.find_first_not_of(' '), bytes.size());
  const size_t last = bytes.find_last_not_of(' ');
  const size_t trailing = last == bytes.npos ? bytes.size() : bytes.size() - 1 - last;
  auto& [begin, end] = *range;
  if (leading == 1 && begin == 0 && trim.add_prefix_space) leading = 0;
  begin = std::min(begin + leading, end);
  if (end >= trailing) end = std::max(end - trailing, begin);
}

// puts_blank: the tokenizer put one before the text.
std::optional<std::vector<Range>> Align(const Tokenizer& tokenizer, std::span<const TokenId> ids,
                                        std::string_view text, bool puts_blank) {
  std::vector<Range> offsets;
  offsets.reserve(ids.size());
  size_t num_characters = 0;  // that have begun
  for (const TokenId id : ids) {
    const std::string_view token = tokenizer.TokenBytes(id);
    std::string_view bytes = token;
    const bool has_blank = puts_blank && bytes.starts_with(' ');
    if (has_blank) bytes.remove_prefix(1);
    if (token.empty() || !text.starts_with(bytes)) {
      if (!tokenizer.IsSpecial(id)) return std::nullopt;
      offsets.emplace_back(0, 0);
      continue;
    }
    if (has_blank) puts_blank = false;
    text.remove_prefix(bytes.size());
    const size_t begin = num_characters - (!bytes.empty() && IsUtf8Continuation(bytes[0]) ? 1 : 0);
    num_characters += static_cast<size_t>(
        std::ranges::count_if(bytes, [](char byte) { return !IsUtf8Continuation(byte); }));
    Range& range = offsets.emplace_back(begin, bytes.empty() ? 1 : num_characters);
    if (const OffsetTrim* trim = tokenizer.offset_trim()) Trim(*trim, token, &range);
  }
  if (!text.empty() || puts_blank) return std::nullopt;
  return offsets;
}

}  // namespace

std::optional<std::vector<Range>> TokenOffsets(const Tokenizer& tokenizer,
                                               std::span<const TokenId> ids,
                                               std::string_view text) {
  if (auto offsets = Align(tokenizer, ids, text, false)) return offsets;
  return text.empty() ? std::nullopt : Align(tokenizer, ids, text, true);
}

}  // namespace tandem
