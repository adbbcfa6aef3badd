#include "grammar/compiler/utf8_so_far.h"

#include "common/utf8.h"

namespace tandem {
namespace {

// Where the first broken character begins, which may only be cut off; or npos.
size_t FindBroken(std::string_view bytes, bool* is_cut_off) {
  for (size_t pos = 0; pos < bytes.size();) {
    const Utf8Sequence character = ReadUtf8(bytes, pos);
    if (!character.well_formed) {
      *is_cut_off = character.truncated;
      return pos;
    }
    pos += character.size;
  }
  return bytes.npos;
}

}  // namespace

bool IsUtf8SoFar(std::string_view bytes) {
  bool is_cut_off = true;
  FindBroken(bytes, &is_cut_off);
  return is_cut_off;
}

std::string_view OpenCharacter(std::string_view bytes) {
  bool is_cut_off = false;
  const size_t pos = FindBroken(bytes, &is_cut_off);
  return pos == bytes.npos ? std::string_view() : bytes.substr(pos);
}

bool CanFollowOpenCharacter(std::string_view bytes) {
  constexpr size_t kMostContinuations = 3;
  size_t pos = 0;
  while (pos < bytes.size() && pos < kMostContinuations && IsUtf8Continuation(bytes[pos])) ++pos;
  return IsUtf8SoFar(bytes.substr(pos));
}

}  // namespace tandem
