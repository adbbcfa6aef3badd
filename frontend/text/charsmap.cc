#include "frontend/text/charsmap.h"

#include <cstring>

#include "common/strings.h"
#include "common/utf8.h"

namespace tandem {
namespace {

// A unit of the double array: bit 8 is set where a key ends, bits 0..7 hold the label
// with bit 31, and the rest the distance to the children. A value has bit 31 set.
constexpr uint32_t kLeafBit = 1u << 31;
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t Value(uint32_t unit) { return unit & (kLeafBit - 1); }
uint32_t Label(uint32_t unit) { return unit & (kLeafBit | 0xFF); }
uint32_t Offset(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

}  // namespace

StatusOr<Charsmap> Charsmap::Create(std::string_view bytes) {
  Charsmap map;
  if (bytes.empty()) return map;
  uint32_t trie_bytes = 0;
  if (bytes.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes.size() - sizeof trie_bytes) {
    return InvalidArgumentError("precompiled_charsmap of " + std::to_string(bytes.size()) +
                                " bytes has no trie of " + std::to_string(trie_bytes) + " bytes");
  }
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), bytes.data() + sizeof trie_bytes, trie_bytes);
  map.texts_ = bytes.substr(sizeof trie_bytes + trie_bytes);
  if (FindInvalidUtf8(map.texts_) != std::string_view::npos) {
    return InvalidArgumentError("precompiled_charsmap has texts that are not UTF-8");
  }
  return map;
}

std::string_view Charsmap::TextAt(uint32_t offset) const {
  if (offset >= texts_.size() || IsUtf8Continuation(texts_[offset])) return {};
  return texts_.data() + offset;  // up to its NUL; a string has one at its end
}

std::optional<Charsmap::Match> Charsmap::Find(std::string_view text, bool first) const {
  std::optional<Match> found;
  if (units_.empty()) return found;
  uint32_t node = Offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size() || Label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= Offset(unit);
    if (!HasLeaf(unit) || node >= units_.size()) continue;
    if (i + 1 < text.size() && IsUtf8Continuation(text[i + 1])) continue;  // inside a character
    found = Match{i + 1, TextAt(Value(units_[node]))};
    if (first) break;
  }
  return found;
}

}  // namespace tandem
