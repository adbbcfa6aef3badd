#include "frontend/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common/utf8.h"
#include "frontend/jinja/text.h"

namespace tandem::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  bool grouped = false;
  char group = ',';
  int width = 0;
  int precision = -1;
  char type = '\0';
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

StatusOr<int> ReadNumber(std::string_view text, size_t* pos) {
  int value = 0;
  while (*pos < text.size() && IsDigit(text[*pos])) {
    value = value * 10 + (text[(*pos)++] - '0');
    if (value > kMaxWidth) return ResourceExhaustedError("a format is wider than 10000 characters");
  }
  return value;
}

std::string GroupDigits(const std::string& digits, char separator, size_t group) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % group == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string InBase(Int value, int base, bool upper) {
  std::string digits;
  do {
    const int digit = static_cast<int>(value % base);
    digits += static_cast<char>(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10);
    value /= base;
  } while (value != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string Printf(char type, int precision, bool alternate, double value) {
  const char format[] = {'%',
                         alternate ? '#' : '.',
                         alternate ? '.' : '*',
                         alternate ? '*' : type,
                         alternate ? type : '\0',
                         '\0'};
  std::string out(400 + static_cast<size_t>(precision), '\0');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int size = std::snprintf(out.data(), out.size(), format, precision, value);
#pragma GCC diagnostic pop
  out.resize(static_cast<size_t>(size));
  return out;
}

std::string Aligned(std::string_view text, const Spec& spec, char default_align, size_t sign_size) {
  const size_t size = CountUtf8(text);
  const size_t width = static_cast<size_t>(spec.width);
  if (size >= width) return std::string(text);
  const size_t missing = width - size;
  switch (spec.align != '\0' ? spec.align : default_align) {
    case '>':
      return Pad(text, missing, 0, spec.fill);
    case '^':
      return Pad(text, missing / 2, missing - missing / 2, spec.fill);
    case '=':
      return std::string(text.substr(0, sign_size)) +
             Pad(text.substr(sign_size), missing, 0, spec.fill);
    default:
      return Pad(text, 0, missing, spec.fill);
  }
}

Status WrongType(char type, const Value& value) {
  return InvalidArgumentError(std::string("Unknown format code '") + type +
                              "' for object of type '" + std::string(TypeName(value)) + "'");
}

// A number's digits without its sign.
StatusOr<std::string> NumberBody(const Value& value, const Spec& spec) {
  static constexpr std::string_view kFloatTypes = "eEfFgG%";
  const char type = spec.type;
  if (value.IsInteger() && kFloatTypes.find(type) == std::string_view::npos) {
    const Int magnitude = value.AsInt() < 0 ? -value.AsInt() : value.AsInt();
    switch (type) {
      case '\0':
      case 'd':
      case 'i':
      case 'u':
      case 'n': {
        const std::string digits = FormatInt(magnitude);
        return spec.grouped ? GroupDigits(digits, spec.group, 3) : digits;
      }
      case 'x':
      case 'X':
        return (spec.alternate ? type == 'x' ? "0x" : "0X" : "") +
               InBase(magnitude, 16, type == 'X');
      case 'o':
        return (spec.alternate ? "0o" : "") + InBase(magnitude, 8, false);
      case 'b':
        return (spec.alternate ? "0b" : "") + InBase(magnitude, 2, false);
      default:
        return WrongType(type, value);
    }
  }
  const double magnitude = std::fabs(value.AsDouble());
  if (type == '\0' && spec.precision < 0) return FormatFloat(magnitude);
  if (type != '\0' && kFloatTypes.find(type) == std::string_view::npos) {
    return WrongType(type, value);
  }
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  if (type == '%') return Printf('f', precision, spec.alternate, magnitude * 100) + "%";
  std::string text = Printf(type == '\0' ? 'g' : type, precision, spec.alternate, magnitude);
  if (spec.grouped) {
    const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
    text = GroupDigits(text.substr(0, end), spec.group, 3) + text.substr(end);
  }
  return text;
}

StatusOr<std::string> FormatValue(const Value& value, const Spec& spec) {
  const bool as_text =
      spec.type == 's' || !value.IsNumber() || (spec.type == '\0' && value.kind == Kind::kBool);
  if (as_text) {
    if (spec.type != 's' && spec.type != '\0') return WrongType(spec.type, value);
    std::string text = ToText(value);
    if (spec.precision >= 0) text.resize(BytePosition(text, spec.precision));
    return Aligned(text, spec, '<', 0);
  }
  if (spec.type == 'c') {
    std::string text;
    const Int c = value.kind == Kind::kFloat ? -1 : value.AsInt();
    if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return WrongType('c', value);
    AppendUtf8(static_cast<char32_t>(c), &text);
    return Aligned(text, spec, '<', 0);
  }
  ASSIGN_OR_RETURN(const std::string body, NumberBody(value, spec));
  const bool negative = value.kind == Kind::kFloat ? std::signbit(value.real) : value.AsInt() < 0;
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const size_t sign_size = sign.size();
  return Aligned(sign + body, spec, '>', sign_size);
}

Status ReadPrecision(std::string_view text, size_t* pos, Spec* spec) {
  if (*pos >= text.size() || text[*pos] != '.') return OkStatus();
  ++*pos;
  ASSIGN_OR_RETURN(spec->precision, ReadNumber(text, pos));
  return OkStatus();
}

// "[[fill]align][sign][#][0][width][,][.precision][type]"
StatusOr<Spec> ParseSpec(std::string_view text) {
  Spec spec;
  size_t pos = 0;
  const auto is_align = [&](size_t at) {
    return at < text.size() && std::string_view("<>=^").find(text[at]) != std::string_view::npos;
  };
  if (!text.empty()) {
    size_t after = 0;
    NextUtf8(text, &after);
    if (is_align(after)) {
      spec.fill = std::string(text.substr(0, after));
      spec.align = text[after];
      pos = after + 1;
    } else if (is_align(0)) {
      spec.align = text[0];
      pos = 1;
    }
  }
  const auto at = [&] { return pos < text.size() ? text[pos] : '\0'; };
  if (at() == '+' || at() == '-' || at() == ' ') spec.sign = text[pos++];
  if (at() == '#') {
    spec.alternate = true;
    ++pos;
  }
  if (at() == '0') {
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
    ++pos;
  }
  ASSIGN_OR_RETURN(spec.width, ReadNumber(text, &pos));
  if (at() == ',' || at() == '_') {
    spec.grouped = true;
    spec.group = text[pos++];
  }
  RETURN_IF_ERROR(ReadPrecision(text, &pos, &spec));
  if (pos < text.size()) spec.type = text[pos++];
  if (pos != text.size()) return InvalidArgumentError("Invalid format specifier");
  return spec;
}

// The value of "(name)"; none is given where no name stands there.
StatusOr<Value> ReadNamedValue(std::string_view format, const Value& names, size_t* pos) {
  if (*pos >= format.size() || format[*pos] != '(') return Value();
  const size_t close = format.find(')', *pos);
  if (close == std::string_view::npos || !names.IsDict()) {
    return InvalidArgumentError("format requires a mapping");
  }
  const auto name = format.substr(*pos + 1, close - *pos - 1);
  const Value* found = names.dict->Find(name);
  if (found == nullptr) return InvalidArgumentError("no key '" + std::string(name) + "'");
  *pos = close + 1;
  return *found;
}

// "[flags][width][.precision]type"
StatusOr<Spec> ReadPercentSpec(std::string_view format, size_t* pos) {
  Spec spec;
  const auto at = [&] { return *pos < format.size() ? format[*pos] : '\0'; };
  for (; at() != '\0' && std::string_view("-+ #0").find(at()) != std::string_view::npos; ++*pos) {
    if (at() == '-') spec.align = '<';
    if (at() == '+') spec.sign = '+';
    if (at() == ' ' && spec.sign == '-') spec.sign = ' ';
    if (at() == '#') spec.alternate = true;
    if (at() == '0' && spec.align == '\0') {
      spec.align = '=';
      spec.fill = "0";
    }
  }
  ASSIGN_OR_RETURN(spec.width, ReadNumber(format, pos));
  RETURN_IF_ERROR(ReadPrecision(format, pos, &spec));
  if (*pos >= format.size()) return InvalidArgumentError("incomplete format");
  spec.type = format[(*pos)++];
  return spec;
}

StatusOr<std::string> FormatPercentValue(Value value, Spec spec) {
  if (spec.type == 'r' || spec.type == 'a' || spec.type == 's') {
    std::string text;
    if (spec.type == 's') {
      text = ToText(value);
    } else {
      AppendRepr(value, &text);
    }
    if (spec.precision >= 0) text.resize(BytePosition(text, spec.precision));
    if (spec.align == '=') spec.align = '\0';
    if (spec.fill == "0") spec.fill = " ";
    return Aligned(text, spec, '>', 0);
  }
  const bool is_whole = std::string_view("diu").find(spec.type) != std::string_view::npos;
  if (is_whole && value.kind == Kind::kFloat && std::fabs(value.real) < 1e30) {
    value = Integer(static_cast<Int>(value.real));
  }
  if (!value.IsNumber()) {
    return InvalidArgumentError(std::string("%") + spec.type +
                                " format: a number is required, not " +
                                std::string(TypeName(value)));
  }
  if (value.kind == Kind::kBool) value = Integer(value.AsInt());
  return FormatValue(value, spec);
}

}  // namespace

double RoundTo(double value, int digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < 0) {
    const double scale = std::pow(10.0, -digits);
    return std::nearbyint(value / scale) * scale;
  }
  return std::strtod(Printf('f', digits, false, value).c_str(), nullptr);
}

StatusOr<std::string> PercentFormat(std::string_view format, const std::vector<Value>& args,
                                    const Value& names) {
  std::string out;
  size_t next_arg = 0;
  for (size_t pos = 0; pos < format.size();) {
    const char c = format[pos++];
    if (c != '%') {
      out += c;
      continue;
    }
    if (pos < format.size() && format[pos] == '%') {
      out += format[pos++];
      continue;
    }
    ASSIGN_OR_RETURN(Value value, ReadNamedValue(format, names, &pos));
    ASSIGN_OR_RETURN(const Spec spec, ReadPercentSpec(format, &pos));
    if (!value.IsGiven()) {
      if (next_arg >= args.size()) {
        return InvalidArgumentError("not enough arguments for format string");
      }
      value = args[next_arg++];
    }
    ASSIGN_OR_RETURN(const std::string text, FormatPercentValue(std::move(value), spec));
    out += text;
  }
  if (next_arg < args.size() && !names.IsGiven()) {
    return InvalidArgumentError("not all arguments converted during string formatting");
  }
  return out;
}

StatusOr<std::string> BraceFormat(std::string_view format, const Arguments& args) {
  std::string out;
  size_t next_arg = 0;
  for (size_t pos = 0; pos < format.size();) {
    const char c = format[pos];
    if ((c == '{' || c == '}') && pos + 1 < format.size() && format[pos + 1] == c) {
      out += c;
      pos += 2;
      continue;
    }
    if (c == '}') return InvalidArgumentError("Single '}' encountered in format string");
    if (c != '{') {
      out += c;
      ++pos;
      continue;
    }
    const size_t close = format.find('}', pos);
    if (close == std::string_view::npos) {
      return InvalidArgumentError("Single '{' encountered in format string");
    }
    std::string_view field = format.substr(pos + 1, close - pos - 1);
    pos = close + 1;
    std::string_view spec_text;
    if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec_text = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    bool as_repr = false;
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      as_repr = field.back() != 's';
      field.remove_suffix(2);
    }
    Value value;
    if (field.empty() || IsDigit(field[0])) {
      size_t index = next_arg;
      if (field.empty()) {
        ++next_arg;
      } else {
        size_t end = 0;
        ASSIGN_OR_RETURN(index, ReadNumber(field, &end));
        if (end != field.size())
          return InvalidArgumentError("format field '" + std::string(field) + "'");
      }
      if (index >= args.positional.size()) {
        return InvalidArgumentError("Replacement index " + std::to_string(index) +
                                    " out of range for positional args tuple");
      }
      value = args.positional[index];
    } else {
      for (const auto& [name, named] : args.named) {
        if (name == field) value = named;
      }
      if (!value.IsGiven()) return InvalidArgumentError("no argument '" + std::string(field) + "'");
    }
    std::string repr;
    if (as_repr) {
      AppendRepr(value, &repr);
      value = Text(repr);
    }
    ASSIGN_OR_RETURN(const Spec spec, ParseSpec(spec_text));
    ASSIGN_OR_RETURN(const std::string text, FormatValue(value, spec));
    out += text;
  }
  return out;
}

}  // namespace tandem::jinja
