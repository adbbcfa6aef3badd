#include "common/utf8.h"

namespace tandem {

Utf8Sequence ReadUtf8(std::string_view bytes, size_t pos) {
  const auto lead = static_cast<unsigned char>(bytes[pos]);
  if (lead < 0x80) return {lead, 1, true, false};

  // The second byte's range rules out overlong forms, surrogates and numbers over U+10FFFF.
  size_t size = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {kReplacementChar, 1, false, false};
  }

  char32_t code_point = lead & (0x7F >> size);
  for (size_t i = 1; i < size; ++i) {
    if (pos + i == bytes.size()) return {kReplacementChar, i, false, true};
    const auto byte = static_cast<unsigned char>(bytes[pos + i]);
    if (byte < low || byte > high) return {kReplacementChar, i, false, false};
    code_point = code_point << 6 | (byte & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {code_point, size, true, false};
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto push = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
    push(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    push(0xE0 | code_point >> 12);
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  } else {
    push(0xF0 | code_point >> 18);
    push(0x80 | (code_point >> 12 & 0x3F));
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  }
}

void AppendLossyUtf8(std::string_view bytes, std::string* out) {
  size_t begin = 0;  // of the well-formed run not copied yet
  size_t pos = 0;
  while (pos < bytes.size()) {
    if (static_cast<unsigned char>(bytes[pos]) < 0x80) {
      ++pos;
      continue;
    }
    const Utf8Sequence sequence = ReadUtf8(bytes, pos);
    if (!sequence.well_formed) {
      out->append(bytes, begin, pos - begin);
      out->append("\xEF\xBF\xBD");
      begin = pos + sequence.size;
    }
    pos += sequence.size;
  }
  out->append(bytes, begin, bytes.size() - begin);
}

size_t CountUtf8(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += IsUtf8Continuation(byte) ? 0 : 1;
  return count;
}

}  // namespace tandem
