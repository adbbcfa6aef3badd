#include "frontend/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "common/utf8.h"

namespace tandem::jinja {
namespace {

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool IsPrintable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void AppendHex(const char* format, unsigned value, std::string* out) {
  std::array<char, 16> buffer = {};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  *out += buffer.data();
}

char32_t ToUpper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t ToLower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

// Upper case of one character; some have several.
void AppendUpper(char32_t c, std::string* out) {
  switch (c) {
    case 0xDF:
      *out += "SS";
      return;
    case 0x149:
      *out += "\u02BCN";
      return;
    case 0xFB00:
      *out += "FF";
      return;
    case 0xFB01:
      *out += "FI";
      return;
    case 0xFB02:
      *out += "FL";
      return;
    case 0xFB03:
      *out += "FFI";
      return;
    case 0xFB04:
      *out += "FFL";
      return;
    case 0xFB05:
    case 0xFB06:
      *out += "ST";
      return;
    default:
      AppendUtf8(ToUpper(c), out);
  }
}

bool IsCased(char32_t c) {
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

// A capital sigma at the end of a word becomes the final form.
bool EndsWord(std::string_view text, size_t before, size_t after) {
  size_t previous = before;
  bool cased_before = false;
  while (previous > 0) {
    do {
      --previous;
    } while (previous > 0 && IsUtf8Continuation(text[previous]));
    size_t pos = previous;
    const char32_t c = NextUtf8(text, &pos);
    if (c == '\'' || c == 0xAD || Category(c) == UTF8PROC_CATEGORY_MN) continue;
    cased_before = IsCased(c);
    break;
  }
  if (!cased_before) return false;
  while (after < text.size()) {
    const char32_t c = NextUtf8(text, &after);
    if (c == '\'' || c == 0xAD || Category(c) == UTF8PROC_CATEGORY_MN) continue;
    return !IsCased(c);
  }
  return true;
}

void AppendLower(std::string_view text, size_t begin, size_t end, char32_t c, std::string* out) {
  if (c == 0x130) {
    *out += "i\u0307";
  } else if (c == 0x3A3 && EndsWord(text, begin, end)) {
    *out += "\u03C2";
  } else {
    AppendUtf8(ToLower(c), out);
  }
}

}  // namespace

void AppendQuoted(std::string_view text, std::string* out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  *out += quote;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextUtf8(text, &pos);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      *out += '\\';
      *out += static_cast<char>(c);
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c == '\r') {
      *out += "\\r";
    } else if (c == '\t') {
      *out += "\\t";
    } else if (IsPrintable(c)) {
      out->append(text, begin, pos - begin);
    } else {
      AppendHex(c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c, out);
    }
  }
  *out += quote;
}

void AppendJsonString(std::string_view text, bool ensure_ascii, std::string* out) {
  *out += '"';
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextUtf8(text, &pos);
    static constexpr std::string_view kFrom = "\"\\\b\f\n\r\t";
    static constexpr std::string_view kTo = "\"\\bfnrt";
    const size_t at = c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
    if (at != std::string_view::npos) {
      *out += '\\';
      *out += kTo[at];
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000)) {
      AppendHex("\\u%04x", c, out);
    } else if (ensure_ascii && c >= 0x10000) {
      AppendHex("\\u%04x", 0xD800 + ((c - 0x10000) >> 10), out);
      AppendHex("\\u%04x", 0xDC00 + ((c - 0x10000) & 0x3FF), out);
    } else {
      out->append(text, begin, pos - begin);
    }
  }
  *out += '"';
}

std::string Upper(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) AppendUpper(NextUtf8(text, &pos), &out);
  return out;
}

std::string Lower(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextUtf8(text, &pos);
    AppendLower(text, begin, pos, c, &out);
  }
  return out;
}

std::string Title(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextUtf8(text, &pos);
    if (after_cased) {
      AppendLower(text, begin, pos, c, &out);
    } else {
      AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), &out);
    }
    after_cased = IsCased(c);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  if (text.empty()) return {};
  size_t pos = 0;
  const char32_t first = NextUtf8(text, &pos);
  std::string out;
  AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(first))), &out);
  return out + Lower(text.substr(pos));
}

std::string SwapCase(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextUtf8(text, &pos);
    if (Category(c) == UTF8PROC_CATEGORY_LU) {
      AppendLower(text, begin, pos, c, &out);
    } else {
      AppendUpper(c, &out);
    }
  }
  return out;
}

bool IsSpaceChar(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsAlphaChar(char32_t c) {
  const auto category = Category(c);
  return IsCased(c) || category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_LO;
}

bool IsDigitChar(char32_t c) {
  // Superscripts count as digits although their category is "other number".
  return Category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 ||
         c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}

bool IsAlnumChar(char32_t c) {
  const auto category = Category(c);
  return IsAlphaChar(c) || category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool IsWordChar(char32_t c) { return c == '_' || IsAlnumChar(c); }

namespace {

bool IsAllOfCase(std::string_view text, utf8proc_category_t wanted) {
  bool any = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextUtf8(text, &pos);
    if (!IsCased(c)) continue;
    if (Category(c) != wanted) return false;
    any = true;
  }
  return any;
}

}  // namespace

bool IsUpperText(std::string_view text) { return IsAllOfCase(text, UTF8PROC_CATEGORY_LU); }
bool IsLowerText(std::string_view text) { return IsAllOfCase(text, UTF8PROC_CATEGORY_LL); }

std::string_view Strip(std::string_view text, std::string_view chars, bool left, bool right) {
  const auto strips = [&](std::string_view character) {
    if (!chars.empty()) return chars.find(character) != std::string_view::npos;
    size_t pos = 0;
    return IsSpaceChar(NextUtf8(character, &pos));
  };
  size_t begin = 0;
  while (left && begin < text.size()) {
    size_t pos = begin;
    NextUtf8(text, &pos);
    if (!strips(text.substr(begin, pos - begin))) break;
    begin = pos;
  }
  size_t end = text.size();
  while (right && end > begin) {
    size_t pos = end;
    do {
      --pos;
    } while (pos > begin && IsUtf8Continuation(text[pos]));
    if (!strips(text.substr(pos, end - pos))) break;
    end = pos;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string_view> SplitChars(std::string_view text) {
  std::vector<std::string_view> chars;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    NextUtf8(text, &pos);
    chars.push_back(text.substr(begin, pos - begin));
  }
  return chars;
}

size_t BytePosition(std::string_view text, size_t char_idx) {
  size_t pos = 0;
  while (char_idx-- > 0 && pos < text.size()) NextUtf8(text, &pos);
  return pos;
}

std::string Pad(std::string_view text, size_t left, size_t right, std::string_view fill) {
  std::string out;
  out.reserve(text.size() + (left + right) * fill.size());
  for (; left > 0; --left) out += fill;
  out += text;
  for (; right > 0; --right) out += fill;
  return out;
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to,
                       int64_t max_count) {
  std::string out;
  size_t pos = 0;
  for (int64_t count = 0; max_count < 0 || count < max_count; ++count) {
    if (from.empty()) {
      // Python puts `to` before every character and at the end.
      out += to;
      if (pos >= text.size()) return out;
      const size_t begin = pos;
      NextUtf8(text, &pos);
      out.append(text, begin, pos - begin);
      continue;
    }
    const size_t at = text.find(from, pos);
    if (at == std::string_view::npos) break;
    out.append(text, pos, at - pos).append(to);
    pos = at + from.size();
  }
  return out.append(text, pos);
}

size_t CountOccurrences(std::string_view text, std::string_view part) {
  if (part.empty()) return CountUtf8(text) + 1;
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

namespace {

std::vector<std::string_view> SplitSpaces(std::string_view text, int64_t max_splits,
                                          bool from_right) {
  std::vector<std::string_view> parts;
  text = Strip(text, {}, true, true);
  while (!text.empty()) {
    const bool last = max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits;
    if (last) {
      parts.push_back(text);
      break;
    }
    // The next word, from the left or from the right.
    const auto chars_end = [&](size_t pos) {
      size_t next = pos;
      return IsSpaceChar(NextUtf8(text, &next));
    };
    if (from_right) {
      size_t begin = text.size();
      while (begin > 0) {
        size_t pos = begin;
        do {
          --pos;
        } while (pos > 0 && IsUtf8Continuation(text[pos]));
        if (chars_end(pos)) break;
        begin = pos;
      }
      parts.push_back(text.substr(begin));
      text = Strip(text.substr(0, begin), {}, false, true);
    } else {
      size_t end = 0;
      while (end < text.size() && !chars_end(end)) NextUtf8(text, &end);
      parts.push_back(text.substr(0, end));
      text = Strip(text.substr(end), {}, true, false);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

std::vector<std::string_view> SplitText(std::string_view text, std::string_view separator,
                                        int64_t max_splits, bool from_right) {
  if (separator.empty()) return SplitSpaces(text, max_splits, from_right);
  std::vector<std::string_view> parts;
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    const size_t after = at + separator.size();
    parts.push_back(from_right ? text.substr(after) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(after);
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pos;
    const char32_t c = NextUtf8(text, &pos);
    const bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                        c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(text.substr(begin, (keep_ends ? pos : end) - begin));
    begin = pos;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string StripTags(std::string_view text) {
  std::string plain;
  size_t pos = 0;
  while (pos < text.size()) {
    const size_t open = text.find('<', pos);
    plain.append(text, pos, open == std::string_view::npos ? open : open - pos);
    if (open == std::string_view::npos) break;
    const bool comment = text.substr(open).starts_with("<!--");
    const size_t close = text.find(comment ? "-->" : ">", open);
    if (close == std::string_view::npos) {
      plain.append(text, open);
      break;
    }
    pos = close + (comment ? 3 : 1);
  }
  std::string out;
  for (const std::string_view word : SplitText(plain, {}, -1, false)) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  for (const auto& [from, to] : {std::pair{"&lt;", "<"},
                                 {"&gt;", ">"},
                                 {"&#34;", "\""},
                                 {"&quot;", "\""},
                                 {"&#39;", "'"},
                                 {"&amp;", "&"}}) {
    out = ReplaceAll(out, from, to, -1);
  }
  return out;
}

std::string UrlQuote(std::string_view text, std::string_view safe) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       safe.find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      AppendHex("%%%02X", static_cast<unsigned char>(c), &out);
    }
  }
  return out;
}

}  // namespace tandem::jinja
