#include "frontend/text/vocabulary.h"

#include <algorithm>
#include <cstdio>

namespace tandem {

TokenTexts::TokenTexts(const TokenList& entries) {
  size_t num_bytes = 0;
  TokenId end = 0;
  for (const auto& [id, text] : entries) {
    num_bytes += text.size();
    end = std::max(end, id + 1);
  }
  bytes_.reserve(num_bytes);
  entries_.resize(end);
  for (const auto& [id, text] : entries) {
    entries_[id] = {static_cast<int32_t>(bytes_.size()), static_cast<int32_t>(text.size())};
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
}

std::string_view TokenTexts::Text(TokenId id) const {
  if (!Contains(id)) return {};
  return {bytes_.data() + entries_[id].offset, static_cast<size_t>(entries_[id].length)};
}

Vocabulary::Vocabulary(const TokenList& entries) : TokenTexts(entries) {
  index_.reserve(entries.size());
  size_t offset = 0;
  for (const auto& [id, text] : entries) {
    index_.try_emplace(all_bytes().substr(offset, text.size()), id);
    offset += text.size();
  }
}

std::optional<TokenId> Vocabulary::Find(std::string_view text) const {
  const auto it = index_.find(text);
  if (it == index_.end()) return std::nullopt;
  return it->second;
}

std::string ByteTokenText(unsigned char byte) {
  char text[8];
  std::snprintf(text, sizeof text, "<0x%02X>", byte);
  return text;
}

}  // namespace tandem
