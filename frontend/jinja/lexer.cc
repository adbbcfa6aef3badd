#include "frontend/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "common/utf8.h"

namespace tandem::jinja {
namespace {

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameByte(char c) {
  // Bytes of other scripts' letters are accepted: a name is only looked up.
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

int DigitValue(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// One kind of line end, and none at the end of the source.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// The value of a Python string literal's inside.
std::string Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    static constexpr std::string_view kFrom = "abfnrtv\\'\"";
    static constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t at = kFrom.find(c); at != std::string_view::npos) {
      out += kTo[at];
      continue;
    }
    if (c == '\n') continue;
    const bool octal = c >= '0' && c <= '7';
    const size_t num_digits = octal ? 3 : c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const size_t begin = octal ? i : i + 1;
    const int base = octal ? 8 : 16;
    size_t end = begin;
    char32_t value = 0;
    while (end < text.size() && end < begin + num_digits && DigitValue(text[end]) < base) {
      value = value * base + DigitValue(text[end++]);
    }
    if (num_digits == 0 || (!octal && end != begin + num_digits)) {
      out += '\\';
      out += c;
      continue;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) value = kReplacementChar;
    AppendUtf8(value, &out);
    i = end - 1;
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)), text_(source_) {}

  StatusOr<std::vector<Token>> Run() {
    while (pos_ < text_.size()) {
      const size_t open = FindOpening(pos_);
      if (open == std::string_view::npos) {
        AddText(text_.substr(pos_));
        pos_ = text_.size();
        break;
      }
      RETURN_IF_ERROR(LexTag(open));
    }
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  Status Fail(const std::string& what) const {
    return InvalidArgumentError("line " + std::to_string(line_) + ": " + what);
  }

  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void AddText(std::string_view text) {
    if (!text.empty()) Add(TokenKind::kText, std::string(text));
    CountLines(text);
  }
  void CountLines(std::string_view text) {
    line_ += static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }
  void Advance(size_t end) {
    CountLines(text_.substr(pos_, end - pos_));
    pos_ = end;
  }

  size_t FindOpening(size_t from) const {
    for (size_t at = text_.find('{', from); at != std::string_view::npos;
         at = text_.find('{', at + 1)) {
      if (at + 1 < text_.size() &&
          (text_[at + 1] == '{' || text_[at + 1] == '%' || text_[at + 1] == '#')) {
        return at;
      }
    }
    return std::string_view::npos;
  }

  size_t SkipSpaces(size_t at) const {
    while (at < text_.size() && IsSpace(text_[at])) ++at;
    return at;
  }

  char At(size_t at) const { return at < text_.size() ? text_[at] : '\0'; }

  // The text before a tag, without what the tag's sign or lstrip_blocks removes.
  std::string_view StripBefore(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') {
      size_t end = text.size();
      while (end > 0 && IsSpace(text[end - 1])) --end;
      return text.substr(0, end);
    }
    if (sign == '+' || is_variable) return text;
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) return text;
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    const auto line = text.substr(line_begin);
    return std::all_of(line.begin(), line.end(), IsSpace) ? text.substr(0, line_begin) : text;
  }

  // Where a tag that closes with "<mark>}" at `at` ends, white space it eats included; nullopt when
  // it does not close there. trim: an unsigned end eats one newline (trim_blocks).
  std::optional<size_t> TagEnd(size_t at, char mark, bool trim, bool plus_allowed) const {
    if (At(at) == '-' && At(at + 1) == mark && At(at + 2) == '}') return SkipSpaces(at + 3);
    if (plus_allowed && At(at) == '+' && At(at + 1) == mark && At(at + 2) == '}') return at + 3;
    if (At(at) != mark || At(at + 1) != '}') return std::nullopt;
    return trim && At(at + 2) == '\n' ? at + 3 : at + 2;
  }

  void FinishTag(size_t end) {
    Advance(end);
    line_starting_ = end > 0 && text_[end - 1] == '\n';
  }

  Status LexTag(size_t open) {
    const char mark = text_[open + 1];
    const char sign = At(open + 2) == '-' || At(open + 2) == '+' ? At(open + 2) : '\0';
    const size_t inside = open + 2 + (sign != '\0' ? 1 : 0);
    const std::string_view before = text_.substr(pos_, open - pos_);
    const int line_before = line_;
    AddText(StripBefore(before, sign, mark == '{'));
    line_ = line_before;
    CountLines(before);
    pos_ = open;

    if (mark == '#') return LexComment(inside);
    if (mark == '%') {
      if (const auto raw = RawBegin(inside); raw.has_value()) return LexRaw(*raw);
    }
    pos_ = inside;
    Add(mark == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    return LexInside(mark == '{');
  }

  Status LexComment(size_t inside) {
    for (size_t at = text_.find('#', inside); at != std::string_view::npos;
         at = text_.find('#', at + 1)) {
      if (At(at + 1) != '}') continue;
      const bool is_signed = at > inside && (text_[at - 1] == '-' || text_[at - 1] == '+');
      FinishTag(*TagEnd(is_signed ? at - 1 : at, '#', true, true));
      return OkStatus();
    }
    return Fail("Missing end of comment tag");
  }

  // The place after "raw %}" when a raw block begins at `at`.
  std::optional<size_t> RawBegin(size_t at) const { return Keyword(at, "raw", false); }

  std::optional<size_t> Keyword(size_t at, std::string_view word, bool trim) const {
    at = SkipSpaces(at);
    if (text_.substr(at, word.size()) != word) return std::nullopt;
    return TagEnd(SkipSpaces(at + word.size()), '%', trim, trim);
  }

  Status LexRaw(size_t begin) {
    Advance(begin);
    line_starting_ = text_[begin - 1] == '\n';
    for (size_t open = text_.find("{%", begin); open != std::string_view::npos;
         open = text_.find("{%", open + 1)) {
      const char sign = At(open + 2) == '-' || At(open + 2) == '+' ? At(open + 2) : '\0';
      const auto end = Keyword(open + 2 + (sign != '\0' ? 1 : 0), "endraw", true);
      if (!end.has_value()) continue;
      const std::string_view raw = text_.substr(begin, open - begin);
      const int line_before = line_;
      AddText(StripBefore(raw, sign, false));
      line_ = line_before;
      FinishTag(*end);
      return OkStatus();
    }
    return Fail("Missing end of raw directive");
  }

  Status LexInside(bool is_variable) {
    std::string brackets;  // closing brackets still to come
    while (true) {
      Advance(SkipSpaces(pos_));
      if (pos_ >= text_.size()) {
        Add(TokenKind::kEnd, is_variable ? "print statement" : "statement block");
        return OkStatus();  // the parser reports what is missing
      }
      if (brackets.empty()) {
        const auto end = TagEnd(pos_, is_variable ? '}' : '%', !is_variable, !is_variable);
        if (end.has_value()) {
          Add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          FinishTag(*end);
          return OkStatus();
        }
      }
      RETURN_IF_ERROR(LexToken(&brackets));
    }
  }

  Status LexToken(std::string* brackets) {
    const char c = text_[pos_];
    if (IsDigit(c)) {
      // A number may not run into a name: 1a is refused by the parser as two tokens.
      LexNumber();
      return OkStatus();
    }
    if (IsNameByte(c)) {
      size_t end = pos_;
      while (end < text_.size() && IsNameByte(text_[end])) ++end;
      Add(TokenKind::kName, std::string(text_.substr(pos_, end - pos_)));
      pos_ = end;
      return OkStatus();
    }
    if (c == '"' || c == '\'') return LexString(c);
    return LexOperator(brackets);
  }

  size_t SkipDigits(size_t at, int base) const {
    while (DigitValue(At(at)) < base || (At(at) == '_' && DigitValue(At(at + 1)) < base)) ++at;
    return at;
  }

  void LexNumber() {
    const auto without_underscores = [](std::string_view text) {
      std::string out(text);
      out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
      return out;
    };
    const char prefix = static_cast<char>(At(pos_ + 1) | 0x20);
    const int base = At(pos_) != '0' ? 10
                     : prefix == 'x' ? 16
                     : prefix == 'o' ? 8
                     : prefix == 'b' ? 2
                                     : 10;
    size_t end = base == 10 ? SkipDigits(pos_, 10) : SkipDigits(pos_ + 2, base);
    TokenKind kind = TokenKind::kInteger;
    const bool after_dot = pos_ > 0 && text_[pos_ - 1] == '.';
    if (base == 10 && !after_dot) {
      if (At(end) == '.' && IsDigit(At(end + 1))) {
        end = SkipDigits(end + 1, 10);
        kind = TokenKind::kFloat;
      }
      if ((At(end) | 0x20) == 'e') {
        const size_t digits = At(end + 1) == '+' || At(end + 1) == '-' ? end + 2 : end + 1;
        if (IsDigit(At(digits))) {
          end = SkipDigits(digits, 10);
          kind = TokenKind::kFloat;
        }
      }
    }
    Add(kind, without_underscores(text_.substr(pos_, end - pos_)));
    pos_ = end;
  }

  Status LexString(char quote) {
    size_t end = pos_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return Fail(std::string("unexpected char '") + quote + "'");
    Add(TokenKind::kString, Unescape(text_.substr(pos_ + 1, end - pos_ - 1)));
    Advance(end + 1);
    return OkStatus();
  }

  Status LexOperator(std::string* brackets) {
    static constexpr std::array<std::string_view, 6> kTwoChars = {
        "//", "**", "==", "!=", ">=", "<="};
    const char c = text_[pos_];
    const std::string_view two = text_.substr(pos_, 2);
    if (std::find(kTwoChars.begin(), kTwoChars.end(), two) != kTwoChars.end()) {
      Add(TokenKind::kOperator, std::string(two));
      pos_ += 2;
      return OkStatus();
    }
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      return Fail(std::string("unexpected char '") + c + "'");
    }
    if (c == '(') *brackets += ')';
    if (c == '[') *brackets += ']';
    if (c == '{') *brackets += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets->empty()) return Fail(std::string("unexpected '") + c + "'");
      if (brackets->back() != c) {
        return Fail(std::string("unexpected '") + c + "', expected '" + brackets->back() + "'");
      }
      brackets->pop_back();
    }
    Add(TokenKind::kOperator, std::string(1, c));
    ++pos_;
    return OkStatus();
  }

  std::string source_;
  std::string_view text_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last tag ended a line, or nothing came yet
  std::vector<Token> tokens_;
};

}  // namespace

StatusOr<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "template data / text";
    case TokenKind::kVariableBegin:
      return "begin of print statement";
    case TokenKind::kVariableEnd:
      return "end of print statement";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kEnd:
      return "end of template";
    default:
      return token.text;
  }
}

}  // namespace tandem::jinja
