#include "frontend/parsers/python_literal.h"

#include <cctype>

#include "common/strings.h"
#include "common/utf8.h"
#include "frontend/parsers/tool_set.h"

namespace tandem {
namespace {

constexpr int kMaxDepth = 64;

bool IsNameStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool IsNamePart(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::string_view rest() const { return text_; }
  void SkipBlanks() {
    const size_t size = text_.find_first_not_of(" \t\r\n");
    text_.remove_prefix(std::min(size, text_.size()));
  }
  char Peek(size_t i = 0) const { return i < text_.size() ? text_[i] : '\0'; }
  bool TrySkip(std::string_view word) {
    if (text_.substr(0, word.size()) != word) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  std::string_view TakeWhile(bool (*accepts)(char)) {
    size_t size = 0;
    while (size < text_.size() && accepts(text_[size])) ++size;
    const std::string_view taken = text_.substr(0, size);
    text_.remove_prefix(size);
    return taken;
  }
  std::string_view TakeName() {
    return IsNameStart(Peek()) ? TakeWhile(&IsNamePart) : std::string_view();
  }
  bool Value(int depth, std::string* json);
  bool Arguments(int depth, std::string* json);

 private:
  bool Items(char close, int depth, std::string* json);
  bool Dict(int depth, std::string* json);
  bool Number(std::string* json);
  bool String(std::string* value);
  bool Escape(std::string* value);
  bool CodePoint(size_t num_digits, std::string* value);

  std::string_view text_;
};

bool Reader::CodePoint(size_t num_digits, std::string* value) {
  if (text_.size() < num_digits) return false;
  uint32_t code = 0;
  const char* const end = text_.data() + num_digits;
  if (std::from_chars(text_.data(), end, code, 16).ptr != end) return false;
  text_.remove_prefix(num_digits);
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
  AppendUtf8(static_cast<char32_t>(code), value);
  return true;
}

// After the backslash.
bool Reader::Escape(std::string* value) {
  constexpr std::string_view kNames = "\\'\"abfnrtv0\n";
  constexpr std::string_view kValues("\\'\"\a\b\f\n\r\t\v\0", 11);
  const char c = Peek();
  if (c == '\0') return false;
  text_.remove_prefix(1);
  if (c == 'x') return CodePoint(2, value);
  if (c == 'u') return CodePoint(4, value);
  if (c == 'U') return CodePoint(8, value);
  const size_t i = kNames.find(c);
  if (i == std::string_view::npos) {
    *value += '\\';
    *value += c;
  } else if (c != '\n') {
    *value += kValues[i];
  }
  return true;
}

// At a quote or a prefix of one. An f-string with an expression is no literal.
bool Reader::String(std::string* value) {
  bool raw = false, formatted = false;
  for (; Peek() != '\'' && Peek() != '"'; text_.remove_prefix(1)) {
    const char prefix = static_cast<char>(std::tolower(static_cast<unsigned char>(Peek())));
    raw |= prefix == 'r';
    formatted |= prefix == 'f';
  }
  const char quote = Peek();
  std::string end(3, quote);
  if (text_.substr(0, 3) != end) end = quote;
  text_.remove_prefix(end.size());
  while (!TrySkip(end)) {
    const char c = Peek();
    if (c == '\0' || (end.size() == 1 && c == '\n')) return false;
    if (formatted && (c == '{' || c == '}')) return false;
    text_.remove_prefix(1);
    if (c == '\\' && !raw) {
      if (!Escape(value)) return false;
    } else {
      *value += c;
      if (c == '\\') {  // raw: the next character does not end the text
        *value += Peek();
        if (!text_.empty()) text_.remove_prefix(1);
      }
    }
  }
  return true;
}

bool Reader::Number(std::string* json) {
  std::string text;
  if (Peek() == '-') text = "-";
  if (Peek() == '-' || Peek() == '+') text_.remove_prefix(1);
  const std::string_view digits = TakeWhile([](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == 'e' ||
           c == 'E' || c == '+' || c == '-';
  });
  for (const char c : digits) {
    if (c != '_') text += c;
  }
  const size_t first = text.find_first_not_of('-');
  if (first == std::string::npos) return false;
  if (text[first] == '.') text.insert(first, "0");
  if (text.back() == '.') text += "0";
  // "07" is no number, "0.7" is one.
  if (text[first] == '0' && first + 1 < text.size() &&
      std::isdigit(static_cast<unsigned char>(text[first + 1])) != 0) {
    return false;
  }
  const auto number = NumberAsJson(text);
  if (number) *json += *number;
  return number.has_value();
}

// Values up to `close`, as an array.
bool Reader::Items(char close, int depth, std::string* json) {
  *json += '[';
  for (bool is_first = true;; is_first = false) {
    SkipBlanks();
    if (Peek() == close) break;
    if (!is_first) *json += ", ";
    if (!Value(depth + 1, json)) return false;
    SkipBlanks();
    if (!TrySkip(",") && Peek() != close) return false;
  }
  text_.remove_prefix(1);
  *json += ']';
  return true;
}

// After the '{' of a dict or a set.
bool Reader::Dict(int depth, std::string* json) {
  SkipBlanks();
  if (TrySkip("}")) {
    *json += "{}";
    return true;
  }
  const std::string_view begin = text_;
  std::string first;
  if (!Value(depth + 1, &first)) return false;
  SkipBlanks();
  const bool is_dict = Peek() == ':';
  text_ = begin;
  if (!is_dict) return Items('}', depth, json);
  *json += '{';
  for (bool is_first = true;; is_first = false) {
    SkipBlanks();
    if (TrySkip("}")) break;
    if (!is_first) *json += ", ";
    std::string key;
    if (!Value(depth + 1, &key)) return false;
    *json += key.front() == '"' ? key : QuoteJson(key);
    SkipBlanks();
    if (!TrySkip(":")) return false;
    *json += ": ";
    if (!Value(depth + 1, json)) return false;
    SkipBlanks();
    if (!TrySkip(",") && Peek() != '}') return false;
  }
  *json += '}';
  return true;
}

bool Reader::Value(int depth, std::string* json) {
  if (depth > kMaxDepth) return false;
  SkipBlanks();
  const char c = Peek();
  if (c == '[' || c == '(') {
    text_.remove_prefix(1);
    return Items(c == '[' ? ']' : ')', depth, json);
  }
  if (c == '{') {
    text_.remove_prefix(1);
    return Dict(depth, json);
  }
  const size_t quote = text_.find_first_of("'\"");
  const bool has_prefix =
      quote <= 2 && text_.substr(0, quote).find_first_not_of("rRbBuUfF") == std::string_view::npos;
  if (has_prefix) {
    std::string value;
    if (!String(&value)) return false;
    *json += QuoteJson(value);
    return true;
  }
  if (IsNameStart(c)) {
    const std::string name = ToLower(TakeName());
    if (name == "none") {
      *json += "null";
    } else if (name == "true" || name == "false" || name == "null") {
      *json += name;
    } else {
      return false;
    }
    return true;
  }
  return Number(json);
}

// After the '(': keyword arguments up to the ')'.
bool Reader::Arguments(int depth, std::string* json) {
  *json += '{';
  for (bool is_first = true;; is_first = false) {
    SkipBlanks();
    if (TrySkip(")")) break;
    if (!is_first) *json += ", ";
    const std::string_view name = TakeName();
    if (name.empty()) return false;
    *json += QuoteJson(name);
    SkipBlanks();
    if (!TrySkip("=")) return false;
    *json += ": ";
    if (!Value(depth, json)) return false;
    SkipBlanks();
    if (!TrySkip(",") && Peek() != ')') return false;
  }
  *json += '}';
  return true;
}

}  // namespace

std::optional<PythonCall> TakePythonCall(std::string_view* text) {
  Reader reader(*text);
  PythonCall call;
  do {
    const std::string_view part = reader.TakeName();
    if (part.empty()) return std::nullopt;
    if (!call.name.empty()) call.name += '.';
    call.name += part;
  } while (reader.TrySkip("."));
  if (!reader.TrySkip("(") || !reader.Arguments(0, &call.arguments)) return std::nullopt;
  *text = reader.rest();
  return call;
}

std::optional<std::vector<PythonCall>> ParsePythonCallList(std::string_view text) {
  text = StripAscii(text);
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  text = StripAscii(text.substr(1, text.size() - 2));
  std::vector<PythonCall> calls;
  while (!text.empty()) {
    auto call = TakePythonCall(&text);
    if (!call) return std::nullopt;
    calls.push_back(std::move(*call));
    text = StripAscii(text);
    if (text.empty()) break;
    if (text.front() != ',') return std::nullopt;
    text = StripAscii(text.substr(1));
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

std::optional<std::vector<PythonCall>> ParsePythonCallLines(std::string_view text) {
  std::vector<PythonCall> calls;
  for (text = StripAscii(text); !text.empty(); text = StripAscii(text)) {
    auto call = TakePythonCall(&text);
    if (!call) return std::nullopt;
    calls.push_back(std::move(*call));
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

}  // namespace tandem
