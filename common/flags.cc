#include "common/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "common/flag_json.h"
#include "common/flag_word.h"
#include "common/own_variable.h"
#include "common/parse_bool.h"
#include "common/strings.h"

namespace tandem {
namespace {

template <class T>
struct Unwrapped {
  using Type = T;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using Type = T;
};

std::string FormatNumber(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.12g", value);
  return buffer;
}

Status BadValue(const Flag& flag, std::string_view value, std::string_view allowed) {
  return InvalidArgumentError("--" + std::string(flag.name) + " is '" + std::string(value) +
                              "', must be " + std::string(allowed));
}

template <class Number>
Status CheckRange(const Flag& flag, std::string_view text, Number value) {
  const auto as_double = static_cast<double>(value);
  if (as_double >= flag.rules.min && as_double <= flag.rules.max) return OkStatus();
  if (!flag.rules.allowed.empty()) return BadValue(flag, text, flag.rules.allowed);
  if (flag.rules.max == std::numeric_limits<double>::infinity()) {
    return BadValue(flag, text, "at least " + FormatNumber(flag.rules.min));
  }
  if (flag.rules.min == -std::numeric_limits<double>::infinity()) {
    return BadValue(flag, text, "at most " + FormatNumber(flag.rules.max));
  }
  return BadValue(
      flag, text,
      "between " + FormatNumber(flag.rules.min) + " and " + FormatNumber(flag.rules.max));
}

Status Parse(const Flag& flag, std::string_view text, bool* out) {
  const std::optional<bool> value = ParseBool(text);
  if (!value) return BadValue(flag, text, "true or false");
  *out = *value;
  return OkStatus();
}

Status Parse(const Flag& flag, std::string_view text, int64_t* out) {
  const std::optional<int64_t> value = ParseHumanInt(text);
  if (!value) return BadValue(flag, text, "a whole number");
  RETURN_IF_ERROR(CheckRange(flag, text, *value));
  *out = *value;
  return OkStatus();
}

Status Parse(const Flag& flag, std::string_view text, double* out) {
  const std::optional<double> value = ParseNumber<double>(text);
  if (!value) return BadValue(flag, text, "a number");
  RETURN_IF_ERROR(CheckRange(flag, text, *value));
  *out = *value;
  return OkStatus();
}

Status Parse(const Flag& flag, std::string_view text, std::string* out) {
  const auto& choices = flag.rules.choices;
  if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
    std::string allowed = "one of";
    for (const std::string_view choice : choices) allowed += " " + std::string(choice);
    return BadValue(flag, text, allowed);
  }
  *out = std::string(text);
  return OkStatus();
}

// Sets the target from the texts given for the flag; the last one counts, except for a list.
Status Assign(const Flag& flag, const std::vector<std::string>& texts) {
  return std::visit(
      [&](auto* target) -> Status {
        using Target = std::remove_pointer_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, std::vector<std::string>>) {
          *target = texts;
          return OkStatus();
        } else {
          typename Unwrapped<Target>::Type value{};
          RETURN_IF_ERROR(Parse(flag, texts.back(), &value));
          *target = value;
          return OkStatus();
        }
      },
      flag.target);
}

std::string DefaultText(const Flag& flag) {
  return std::visit(
      [](auto* target) -> std::string {
        using Target = std::remove_pointer_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, bool>) {
          return *target ? "true" : "false";
        } else if constexpr (std::is_same_v<Target, int64_t>) {
          return std::to_string(*target);
        } else if constexpr (std::is_same_v<Target, double>) {
          return FormatNumber(*target);
        } else if constexpr (std::is_same_v<Target, std::string>) {
          return *target;
        } else {
          return "";
        }
      },
      flag.target);
}

std::string_view TypeName(const Flag& flag) {
  return std::visit(
      [](auto* target) -> std::string_view {
        using Value = typename Unwrapped<std::remove_pointer_t<decltype(target)>>::Type;
        if constexpr (std::is_same_v<Value, bool>) {
          return "";
        } else if constexpr (std::is_same_v<Value, int64_t>) {
          return "INT";
        } else if constexpr (std::is_same_v<Value, double>) {
          return "FLOAT";
        } else if constexpr (std::is_same_v<Value, std::string>) {
          return "TEXT";
        } else {
          return "TEXT ...";
        }
      },
      flag.target);
}

// The shortest text that reads back as the same number.
std::string FormatExactly(double value) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

std::string ValueText(bool value) { return value ? "true" : "false"; }
std::string ValueText(int64_t value) { return std::to_string(value); }
std::string ValueText(double value) { return FormatExactly(value); }
std::string ValueText(const std::string& value) { return value; }

// For CLI11 a value "[a,b]" of a list is two, and "[]" none, so that what follows is taken in its
// place; with this before it, it is a text.
constexpr char kPlain = '\x01';
bool IsBracketed(std::string_view text) { return text.starts_with('[') && text.ends_with(']'); }
std::string Shielded(const std::string& text) {
  return IsBracketed(text) ? std::string(1, kPlain) + text : text;
}
void Unshield(std::string* text) {
  if (text->starts_with(kPlain) && IsBracketed(text->substr(1))) text->erase(0, 1);
}

// Spells arguments as CLI11 knows them: "--a_b" becomes "--a-b", "--no-x" and "--no-x=true"
// "--x=false", a bare bool "--x=true", "-tp" its long name.
std::vector<std::string> Normalize(const std::vector<Flag>& flags,
                                   const std::vector<std::string>& args) {
  std::vector<std::string> normal;
  for (const std::string& arg : args) {
    if (!IsFlagWord(arg)) {
      normal.push_back(Shielded(arg));
      continue;
    }
    const size_t equals = arg.find('=');
    const std::string name = arg.substr(0, equals);
    const Flag* flag = FindFlag(flags, name);
    if (flag == nullptr) {
      normal.push_back(arg);
      continue;
    }
    std::string text = "--" + std::string(flag->name);
    const bool is_twin = flag->is_bool() && WithDashes(name) == "--no-" + std::string(flag->name);
    const auto given = equals == arg.npos ? std::optional(true) : ParseBool(arg.substr(equals + 1));
    if (flag->is_bool() && given) {
      text += *given != is_twin ? "=true" : "=false";
    } else if (equals != arg.npos) {
      text += "=" + Shielded(arg.substr(equals + 1));
    }
    normal.push_back(std::move(text));
  }
  return normal;
}

// A flag that is not a bool needs a value after it: not the end, and not another flag.
Status CheckValuesGiven(const std::vector<Flag>& flags, const std::vector<std::string>& args) {
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (!IsFlagWord(arg)) continue;
    const size_t equals = arg.find('=');
    const Flag* flag = FindFlag(flags, arg.substr(0, equals));
    if (flag == nullptr || flag->is_bool()) continue;
    const bool missing = equals != std::string::npos ? equals + 1 == arg.size()
                         : i + 1 == args.size()      ? true
                                                     : FindFlag(flags, args[i + 1]) != nullptr;
    if (missing) return InvalidArgumentError("--" + std::string(flag->name) + " needs a value");
  }
  return OkStatus();
}

std::optional<OwnVariable> VariableOf(const Flag& flag) {
  if (flag.rules.env.empty()) return std::nullopt;
  return FindOwnVariable(flag.rules.env);
}

// What one argument has to do with secret flags.
enum class SecretPart { kNone, kName, kNameAndValue, kValue };

std::vector<SecretPart> FindSecrets(const std::vector<Flag>& flags,
                                    const std::vector<std::string>& args) {
  std::vector<SecretPart> parts;
  bool values_follow = false;
  for (const std::string& arg : args) {
    if (!IsFlagWord(arg)) {
      parts.push_back(values_follow ? SecretPart::kValue : SecretPart::kNone);
      continue;
    }
    const size_t equals = arg.find('=');
    const Flag* flag = FindFlag(flags, arg.substr(0, equals));
    const bool is_secret = flag != nullptr && flag->rules.secret;
    values_follow = is_secret;  // also after "=": a list goes on
    parts.push_back(!is_secret                    ? SecretPart::kNone
                    : equals == std::string::npos ? SecretPart::kName
                                                  : SecretPart::kNameAndValue);
  }
  return parts;
}

void Overwrite(char* text) {
  for (; *text != '\0'; ++text) *text = '*';
}

}  // namespace

std::optional<std::string> FlagValueText(const Flag& flag) {
  return std::visit(
      [](const auto* target) -> std::optional<std::string> {
        using Target = std::remove_const_t<std::remove_pointer_t<decltype(target)>>;
        if constexpr (std::is_same_v<Target, std::vector<std::string>>) {
          std::string text;
          for (const std::string& word : *target) text += (text.empty() ? "" : " ") + word;
          return text;
        } else if constexpr (std::is_same_v<Target, typename Unwrapped<Target>::Type>) {
          return ValueText(*target);
        } else {
          return *target ? std::optional(ValueText(**target)) : std::nullopt;
        }
      },
      flag.target);
}

std::string FlagVariable(const Flag& flag) {
  std::optional<OwnVariable> variable = VariableOf(flag);
  return variable ? std::move(variable->name) : "";
}

std::vector<std::string> WithoutSecrets(const std::vector<Flag>& flags,
                                        const std::vector<std::string>& args) {
  const std::vector<SecretPart> parts = FindSecrets(flags, args);
  std::vector<std::string> left;
  for (size_t i = 0; i < args.size(); ++i) {
    if (parts[i] == SecretPart::kNone) left.push_back(args[i]);
  }
  return left;
}

void HideSecretArguments(const std::vector<Flag>& flags, int argc, char** argv) {
  const std::vector<SecretPart> parts =
      FindSecrets(flags, std::vector<std::string>(argv, argv + argc));
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == SecretPart::kValue) Overwrite(argv[i]);
    if (parts[i] == SecretPart::kNameAndValue) Overwrite(std::strchr(argv[i], '=') + 1);
  }
}

void HideSecretVariables(const std::vector<Flag>& flags) {
  for (const Flag& flag : flags) {
    if (!flag.rules.secret || flag.rules.env.empty()) continue;
    for (const char* prefix : kVariablePrefixes) {
      char* value = std::getenv((prefix + std::string(flag.rules.env)).c_str());
      if (value != nullptr) Overwrite(value);
    }
  }
}

std::vector<std::string> ToArguments(const std::vector<Flag>& flags) {
  std::vector<std::string> arguments;
  for (const Flag& flag : flags) {
    if (flag.rules.secret) continue;
    const std::string name = "--" + std::string(flag.name);
    std::visit(
        [&](auto* target) {
          using Target = std::remove_pointer_t<decltype(target)>;
          if constexpr (std::is_same_v<Target, std::vector<std::string>>) {
            if (target->empty()) return;
            arguments.push_back(name);
            arguments.insert(arguments.end(), target->begin(), target->end());
          } else if constexpr (std::is_same_v<Target, typename Unwrapped<Target>::Type>) {
            // Without a text there is nothing to give.
            if constexpr (std::is_same_v<Target, std::string>) {
              if (target->empty()) return;
            }
            arguments.push_back(name + "=" + ValueText(*target));
          } else if (*target) {
            arguments.push_back(name + "=" + ValueText(**target));
          }
        },
        flag.target);
  }
  return arguments;
}

std::optional<int64_t> ParseHumanInt(std::string_view text) {
  if (text.empty()) return std::nullopt;
  int64_t scale = 1;
  switch (text.back()) {
    case 'k':
      scale = 1'000;
      break;
    case 'K':
      scale = 1 << 10;
      break;
    case 'm':
      scale = 1'000'000;
      break;
    case 'M':
      scale = 1 << 20;
      break;
    case 'g':
      scale = 1'000'000'000;
      break;
    case 'G':
      scale = 1 << 30;
      break;
    default:
      return ParseNumber<int64_t>(text);
  }
  const std::optional<double> value = ParseNumber<double>(text.substr(0, text.size() - 1));
  if (!value || !(std::abs(*value) * static_cast<double>(scale) < 9e18)) return std::nullopt;
  return static_cast<int64_t>(*value * static_cast<double>(scale));
}

const Flag* FindFlag(const std::vector<Flag>& flags, std::string_view argument) {
  const bool is_long = argument.starts_with("--");
  argument.remove_prefix(is_long ? 2 : argument.starts_with("-") ? 1 : 0);
  const std::string name = WithDashes(argument.substr(0, argument.find('=')));
  for (const Flag& flag : flags) {
    if (!is_long && !flag.rules.short_name.empty() && flag.rules.short_name == name) return &flag;
    if (is_long &&
        (flag.name == name || (flag.is_bool() && name == "no-" + std::string(flag.name)))) {
      return &flag;
    }
  }
  return nullptr;
}

Status UnknownFlagError(const std::vector<Flag>& flags, std::string_view argument) {
  const std::string given = WithDashes(argument.substr(0, argument.find('=')));
  std::string message = "unknown flag " + given;
  const Flag* nearest = nullptr;
  int nearest_distance = 4;  // a word with more edits is no misspelling
  for (const Flag& flag : flags) {
    const int distance = EditDistance(given, "--" + std::string(flag.name));
    if (distance < nearest_distance) {
      nearest_distance = distance;
      nearest = &flag;
    }
  }
  if (nearest != nullptr) message += "; did you mean --" + std::string(nearest->name) + "?";
  return InvalidArgumentError(message);
}

std::string FlagHelp(const std::vector<Flag>& flags, std::string_view about,
                     std::string_view filter) {
  if (filter == kJsonHelp) return FlagTableJson(flags, about);
  std::string text = std::string(about) + "\n\n";
  for (const Flag& flag : flags) {
    if (!filter.empty() && flag.name.find(filter) == flag.name.npos &&
        flag.help.find(filter) == flag.help.npos) {
      continue;
    }
    std::string left = "  --" + std::string(flag.name);
    if (!flag.rules.short_name.empty()) left += ", -" + std::string(flag.rules.short_name);
    if (const std::string_view type = TypeName(flag); !type.empty())
      left += " " + std::string(type);
    constexpr size_t kHelpColumn = 44;
    left.resize(std::max(left.size() + 2, kHelpColumn), ' ');
    text += left + std::string(flag.help);
    if (!flag.rules.choices.empty()) {
      text += " (";
      for (const std::string_view choice : flag.rules.choices) {
        if (text.back() != '(') text += "|";
        text += choice;
      }
      text += ")";
    }
    if (const std::string value = DefaultText(flag); !value.empty()) text += " [" + value + "]";
    if (!flag.rules.env.empty()) text += " (env TANDEM_" + std::string(flag.rules.env) + ")";
    text += "\n";
  }
  if (text.ends_with("\n\n"))
    text += "no flag has '" + std::string(filter) + "' in its name or text\n";
  return text;
}

StatusOr<FlagOutcome> ParseFlags(const std::vector<Flag>& flags,
                                 const std::vector<std::string>& args, std::string_view about) {
  for (const std::string& arg : args) {
    if (arg == "-h" || arg == "--help" || arg.starts_with("--help=")) {
      const size_t equals = arg.find('=');
      const std::string filter = equals == arg.npos ? "" : arg.substr(equals + 1);
      std::fputs(FlagHelp(flags, about, filter).c_str(), stdout);
      return FlagOutcome::kHelpShown;
    }
  }

  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::vector<std::vector<std::string>> values(flags.size());
  for (size_t i = 0; i < flags.size(); ++i) {
    const Flag& flag = flags[i];
    CLI::Option* option = app.add_option("--" + std::string(flag.name), values[i]);
    const bool is_list = flag.is_list();
    option->expected(1, is_list ? CLI::detail::expected_max_vector_size : 1);
    // Without this CLI11 gives a flag all bare words after it, the positional one included.
    option->allow_extra_args(is_list);
    option->multi_option_policy(is_list ? CLI::MultiOptionPolicy::TakeAll
                                        : CLI::MultiOptionPolicy::TakeLast);
  }
  RETURN_IF_ERROR(CheckValuesGiven(flags, args));
  std::vector<std::string> reversed = Normalize(flags, args);
  std::reverse(reversed.begin(), reversed.end());  // CLI11 takes arguments from the back
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return InvalidArgumentError(error.what());
  }
  // What is left: bare words, of which the positional row takes the first, and unknown flags.
  std::vector<std::string> bare_words;
  for (std::vector<std::string>& texts : values) {
    for (std::string& text : texts) Unshield(&text);
  }
  for (std::string& extra : app.remaining()) {
    Unshield(&extra);
    if (extra.starts_with("-")) return UnknownFlagError(flags, extra);
    bare_words.push_back(extra);
  }
  size_t num_taken = 0;
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i].rules.positional && values[i].empty() && num_taken < bare_words.size()) {
      values[i].push_back(bare_words[num_taken++]);
    }
  }
  if (num_taken < bare_words.size()) {
    return InvalidArgumentError("unexpected argument '" + bare_words[num_taken] + "'");
  }

  for (size_t i = 0; i < flags.size(); ++i) {
    if (!values[i].empty()) {
      RETURN_IF_ERROR(Assign(flags[i], values[i]));
    } else if (const std::optional<OwnVariable> variable = VariableOf(flags[i])) {
      RETURN_IF_ERROR(Assign(flags[i], {variable->value})
                          .WithContext("environment " + std::string(flags[i].rules.env)));
    }
  }
  return FlagOutcome::kRun;
}

Status ApplySettings(const std::vector<Flag>& flags, std::string_view text) {
  int number = 0;
  for (const std::string_view whole : Split(text, '\n')) {
    ++number;
    const std::string_view line = StripAscii(whole);
    if (line.empty() || line[0] == '#') continue;
    const std::string place = "line " + std::to_string(number);
    const size_t colon = line.find(':');
    if (colon == line.npos) return InvalidArgumentError(place + ": must be \"name: value\"");
    const std::string name = "--" + std::string(StripAscii(line.substr(0, colon)));
    const std::string value(StripAscii(line.substr(colon + 1)));
    const Flag* flag = FindFlag(flags, name);
    if (flag == nullptr) return UnknownFlagError(flags, name).WithContext(place);
    if (!flag->rules.live) {
      return InvalidArgumentError(place + ": " + name + " is for the command line only");
    }
    if (value.empty()) return InvalidArgumentError(place + ": " + name + " needs a value");
    RETURN_IF_ERROR(Assign(*flag, {value}).WithContext(place));
  }
  return OkStatus();
}

}  // namespace tandem
