#include "frontend/text/vocabulary.h"

#include <algorithm>

namespace tandem {

Vocabulary::Vocabulary(const std::vector<std::pair<TokenId, std::string>>& entries) {
  size_t num_bytes = 0;
  TokenId end = 0;
  for (const auto& [id, text] : entries) {
    num_bytes += text.size();
    end = std::max(end, id + 1);
  }
  bytes_.reserve(num_bytes);
  entries_.resize(end);
  index_.reserve(entries.size());
  for (const auto& [id, text] : entries) {
    const size_t offset = bytes_.size();
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    entries_[id] = {static_cast<int32_t>(offset), static_cast<int32_t>(text.size())};
    index_.try_emplace(std::string_view(bytes_.data() + offset, text.size()), id);
  }
}

std::string_view Vocabulary::Text(TokenId id) const {
  if (!Contains(id)) return {};
  return {bytes_.data() + entries_[id].offset, static_cast<size_t>(entries_[id].length)};
}

std::optional<TokenId> Vocabulary::Find(std::string_view text) const {
  const auto it = index_.find(text);
  if (it == index_.end()) return std::nullopt;
  return it->second;
}

}  // namespace tandem
