#include "frontend/text/characters.h"

#include <utf8proc.h>

#include <cstdlib>

#include "common/check.h"
#include "common/utf8.h"

namespace tandem {
namespace {

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Below U+0300 every character is composed and in order: nothing to do for NFC.
bool IsBelowCombining(std::string_view text) {
  for (const char byte : text) {
    if (static_cast<unsigned char>(byte) >= 0xCC) return false;
  }
  return true;
}

// Circled and squared letters, whose category is "other symbol".
bool IsEnclosedLetter(char32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

// The property Cased, where it is not Case_Ignorable.
bool IsCased(char32_t c) {
  if (c == 0xAA || c == 0xBA || (c >= 0x2160 && c <= 0x217F)) return true;  // ordinals, Roman
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT || IsEnclosedLetter(c);
}

// The property Case_Ignorable: what may stand inside a word, such as accents and apostrophes.
bool IsCaseIgnorable(char32_t c) {
  constexpr std::u32string_view kInsideWords =
      U"':.\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
  if (kInsideWords.find(c) != kInsideWords.npos) return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return false;
  }
}

bool PrecedesLetter(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    const char32_t c = NextUtf8(text, &pos);
    if (!IsCaseIgnorable(c)) return IsCased(c);
  }
  return false;
}

void AppendLower(char32_t c, std::string* out) {
  if (c == 0x130) {  // the one character whose lower case is two
    *out += "i\xCC\x87";
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

}  // namespace

bool IsNumeric(char32_t c) {
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool IsMark(char32_t c) {
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

bool IsNonspacingMark(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_MN; }

bool IsControl(char32_t c) {
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO;
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) return c > 0x20 && c < 0x7F && !IsWordChar(c) ? true : c == '_';
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsWordChar(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;  // Join_Control
  if (IsEnclosedLetter(c)) return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

std::string Lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) AppendLower(NextUtf8(text, &pos), &out);
  return out;
}

std::string LowercaseText(std::string_view text) {
  constexpr char32_t kSigma = 0x3A3, kFinalSigma = 0x3C2;
  std::string out;
  out.reserve(text.size());
  bool follows_letter = false;  // with nothing but what has no case of its own in between
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextUtf8(text, &pos);
    if (c == kSigma && follows_letter && !PrecedesLetter(text, pos)) {
      AppendUtf8(kFinalSigma, &out);
    } else {
      AppendLower(c, &out);
    }
    if (!IsCaseIgnorable(c)) follows_letter = IsCased(c);
  }
  return out;
}

std::string Normalize(std::string_view text, NormalForm form) {
  int options = UTF8PROC_STABLE;
  switch (form) {
    case NormalForm::kNfc:
      if (IsBelowCombining(text)) return std::string(text);
      options |= UTF8PROC_COMPOSE;
      break;
    case NormalForm::kNfd:
      options |= UTF8PROC_DECOMPOSE;
      break;
    case NormalForm::kNfkc:
      options |= UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
      break;
    case NormalForm::kNfkd:
      options |= UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
      break;
  }
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                             static_cast<utf8proc_option_t>(options));
  CHECK(size >= 0) << utf8proc_errmsg(size);
  std::string out(reinterpret_cast<const char*>(mapped), size);
  std::free(mapped);
  return out;
}

}  // namespace tandem
