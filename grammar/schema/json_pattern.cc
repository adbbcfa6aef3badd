#include "grammar/schema/json_pattern.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>

#include "common/utf8.h"

namespace tandem {
namespace {

bool IsUnescaped(char32_t c) { return c >= 0x20 && c != '"' && c != '\\'; }

// Reads an expression and decides for each part whether it matches such a text.
class UnescapedMatch {
 public:
  explicit UnescapedMatch(std::string_view regex) : regex_(regex) {}

  bool Run() {
    const bool matches = Alternatives();
    return matches || at_ < regex_.size();  // a ) too many
  }

 private:
  bool at_end() const { return at_ == regex_.size(); }
  bool Take(std::string_view text) {
    const bool is_there = regex_.substr(at_).starts_with(text);
    if (is_there) at_ += text.size();
    return is_there;
  }

  bool Alternatives() {
    bool matches = Sequence();
    while (Take("|")) matches |= Sequence();
    return matches;
  }

  bool Sequence() {
    bool matches = true;
    while (!at_end() && regex_[at_] != '|' && regex_[at_] != ')') {
      const bool part = Part();
      const bool may_be_absent = TakeQuantifiers();
      matches &= part || may_be_absent;
    }
    return matches;
  }

  bool Part() {
    if (Take("(")) return Group();
    if (Take("[")) return Class();
    if (Take("\\")) return IsUnescaped(Escaped(/*in_class=*/false).value_or(' '));
    const char c = regex_[at_++];
    return IsUnescaped(static_cast<unsigned char>(c));
  }

  bool Group() {
    if (!Take("?:") && Take("?<")) at_ = std::min(regex_.find('>', at_), regex_.size() - 1) + 1;
    const bool matches = Alternatives();
    Take(")");
    return matches;
  }

  bool Class() {
    // After ^ other characters are always left.
    bool matches = Take("^") || regex_.substr(at_).starts_with("]");
    while (!Take("]")) {
      if (at_end()) return true;
      const std::optional<char32_t> first = Member();
      const bool is_range = regex_.substr(at_).size() > 1 && regex_[at_ + 1] != ']' && Take("-");
      const std::optional<char32_t> last = is_range ? Member() : first;
      if (!first || !last) {
        matches = true;
      } else {
        matches |= *first == *last ? IsUnescaped(*first) : *last >= 0x20;
      }
    }
    return matches;
  }

  // nullopt: a set of characters, some of which JSON does not escape.
  std::optional<char32_t> Member() {
    if (Take("\\")) return Escaped(/*in_class=*/true);
    return static_cast<unsigned char>(regex_[at_++]);
  }

  // After a backslash. nullopt: a set of characters, or a place between some.
  std::optional<char32_t> Escaped(bool in_class) {
    constexpr std::string_view kSets = "dDwWsSpP", kControls = "nrtvf0";
    if (at_end()) return std::nullopt;
    const char c = regex_[at_++];
    if (kSets.find(c) != kSets.npos || c == 'B') return std::nullopt;
    if (kControls.find(c) != kControls.npos) return '\n';
    if (c == 'b') return in_class ? std::optional<char32_t>('\b') : std::nullopt;
    if (c == 'c') {
      if (!at_end()) ++at_;
      return '\n';
    }
    if (c == 'x') return Hex(2);
    if (c != 'u') return static_cast<unsigned char>(c);
    if (!Take("{")) return Hex(4);
    const std::optional<char32_t> code = Hex(8);
    Take("}");
    return code;
  }

  // Of at most `num_digits` digits.
  char32_t Hex(int num_digits) {
    char32_t code = 0;
    for (; num_digits > 0 && !at_end(); --num_digits, ++at_) {
      const char c = regex_[at_];
      const bool is_digit = c >= '0' && c <= '9';
      const char letter = static_cast<char>(c | 0x20);
      if (!is_digit && (letter < 'a' || letter > 'f')) break;
      code = code * 16 + static_cast<char32_t>(is_digit ? c - '0' : letter - 'a' + 10);
    }
    return code;
  }

  // Whether one of them allows the part to be absent.
  bool TakeQuantifiers() {
    bool may_be_absent = false;
    for (;;) {
      if (Take("*") || Take("?")) {
        may_be_absent = true;
      } else if (Take("{")) {
        may_be_absent |= Take("0,") || Take("0}") || Take(",");
        while (!at_end() && (regex_[at_] == ',' || (regex_[at_] >= '0' && regex_[at_] <= '9'))) {
          ++at_;
        }
        Take("}");
      } else if (!Take("+")) {
        return may_be_absent;
      }
    }
  }

  const std::string_view regex_;
  size_t at_ = 0;
};

}  // namespace

std::string InPrintableAscii(std::string_view regex) {
  std::string ascii;
  bool is_escaped = false;
  for (size_t at = 0; at < regex.size();) {
    const size_t begin = at;
    const char32_t c = NextUtf8(regex, &at);
    if (c >= 0x20 && c <= 0x7e) {
      ascii += regex[begin];
      is_escaped = c == '\\' && !is_escaped;
      continue;
    }
    if (is_escaped) ascii.pop_back();  // it stands for itself
    is_escaped = false;
    char text[sizeof "\\u{10FFFF}"];
    std::snprintf(text, sizeof text, c <= 0xffff ? "\\u%04X" : "\\u{%X}", static_cast<uint32_t>(c));
    ascii += text;
  }
  return ascii;
}

bool MatchesUnescapedText(std::string_view regex) { return UnescapedMatch(regex).Run(); }

}  // namespace tandem
