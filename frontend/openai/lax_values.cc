#include "frontend/openai/lax_values.h"

#include <cmath>
#include <string>

#include "common/strings.h"

namespace tandem {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Without the blanks around it.
std::string_view Stripped(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

// Without the underscores, each of which must stand between two digits.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string rest;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      rest += text[i];
    } else if (i == 0 || i + 1 == text.size() || !IsDigit(text[i - 1]) || !IsDigit(text[i + 1])) {
      return std::nullopt;
    }
  }
  return rest;
}

// from_chars takes no plus, and of two signs pydantic neither.
std::string_view WithoutPlus(std::string_view text) {
  const bool is_number = text.size() > 1 && text[0] == '+' && text[1] != '-' && text[1] != '+';
  return is_number ? text.substr(1) : text;
}

}  // namespace

std::optional<int64_t> IntegerOfText(std::string_view text) {
  text = Stripped(text);
  if (const size_t point = text.find('.'); point != text.npos) {
    const std::string_view zeros = text.substr(point + 1);
    if (zeros.empty() || zeros.find_first_not_of('0') != zeros.npos) return std::nullopt;
    text = text.substr(0, point);
  }
  const std::optional<std::string> digits = WithoutUnderscores(text);
  return digits ? ParseNumber<int64_t>(WithoutPlus(*digits)) : std::nullopt;
}

std::optional<double> NumberOfText(std::string_view text) {
  const std::optional<std::string> plain = WithoutUnderscores(Stripped(text));
  if (!plain) return std::nullopt;
  const std::optional<double> value = ParseNumber<double>(WithoutPlus(*plain));
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<bool> BooleanOfText(std::string_view text) {
  const std::string word = ToLower(text);
  for (const char* yes : {"1", "true", "t", "yes", "y", "on"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"0", "false", "f", "no", "n", "off"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

}  // namespace tandem
