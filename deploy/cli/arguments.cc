#include "deploy/cli/arguments.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/flag_word.h"
#include "common/strings.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// Both names without dashes; the second may be a key of a JSON flag.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"attention-config.backend", "attention-backend"},
    {"device-memory-utilization", "gpu-memory-utilization"},
    {"h11-max-incomplete-event-size", "max-header-bytes"},
    {"logging-config.formatter", "log-format"},
    {"renderer-num-workers", "text-threads"},
    {"spec-method", "speculative-config.method"},
    {"spec-model", "speculative-config.model"},
    {"spec-tokens", "speculative-config.num_speculative_tokens"},
};

// "--some_name.key_of=value": the flag's name with dashes, the key as it is.
struct Argument {
  std::string name;  // without dashes in front
  std::string key;   // after the first dot, or ""
  std::optional<std::string> value;
};

// REQUIRES: IsFlagWord(word).
Argument Parse(std::string_view word, const std::vector<Flag>& flags) {
  Argument argument;
  const size_t equals = word.find('=');
  if (equals != word.npos) argument.value = std::string(word.substr(equals + 1));
  std::string_view name = word.substr(0, equals);
  const size_t dot = name.find('.');
  if (dot != name.npos) argument.key = std::string(name.substr(dot + 1));
  name = name.substr(0, dot);
  const bool is_short = !name.starts_with("--");
  argument.name = std::string(name.substr(is_short ? 1 : 2));
  if (is_short) {
    for (const Flag& flag : flags) {
      if (flag.rules.short_name == argument.name) argument.name = std::string(flag.name);
    }
  }
  argument.name = WithDashes(argument.name);
  const std::string whole =
      argument.key.empty() ? argument.name : argument.name + "." + argument.key;
  for (const auto& [from, to] : kAliases) {
    if (from != whole) continue;
    const size_t to_dot = to.find('.');
    argument.name = std::string(to.substr(0, to_dot));
    argument.key = to_dot == to.npos ? "" : std::string(to.substr(to_dot + 1));
  }
  return argument;
}

bool IsAlias(const Argument& argument, std::string_view word) {
  const std::string given = WithDashes(word.substr(0, word.find_first_of("=.")));
  return given.starts_with("--") && given != "--" + argument.name;
}

// As vLLM reads a key's value: JSON, else a number with a letter, else text.
Json KeyValue(const std::string& text) {
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_discarded()) return value;
  if (const std::optional<int64_t> number = ParseHumanInt(text)) return *number;
  return text;
}

// Keys of `from` replace those of `into`; objects are merged, lists appended.
void Merge(const Json& from, Json* into) {
  for (const auto& [key, value] : from.items()) {
    if (!into->contains(key)) {
      (*into)[key] = value;
      continue;
    }
    Json& present = (*into)[key];
    if (value.is_object() && present.is_object()) {
      Merge(value, &present);
    } else if (value.is_array() && present.is_array()) {
      present.insert(present.end(), value.begin(), value.end());
    } else {
      present = value;
    }
  }
}

// {"a": {"b": value}} of "a.b"; the key "a+" adds the words between commas to a list.
Json Nested(std::string_view key, const std::string& text) {
  const bool appends = key.ends_with('+');
  if (appends) key.remove_suffix(1);
  Json value = appends ? Json::array() : KeyValue(text);
  if (appends) {
    for (const std::string_view word : Split(text, ',')) value.push_back(std::string(word));
  }
  const std::vector<std::string_view> parts = Split(key, '.');
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    Json outer = Json::object();
    outer[std::string(*part)] = std::move(value);
    value = std::move(outer);
  }
  return value;
}

// A flag and its value, which is the next word where it does not stand in the flag's own.
struct GivenValue {
  Argument argument;
  std::string text;  // "" without one
  size_t num_words = 1;
};

// REQUIRES: IsFlagWord(args[i]).
GivenValue ReadValue(const std::vector<std::string>& args, size_t i,
                     const std::vector<Flag>& flags) {
  GivenValue given = {.argument = Parse(args[i], flags), .text = {}};
  if (given.argument.value) {
    given.text = *given.argument.value;
  } else if (i + 1 < args.size()) {
    given.text = args[i + 1];
    given.num_words = 2;
  }
  return given;
}

// "--max-model-len auto" as -1, which means the same.
std::vector<std::string> WithLengths(const std::vector<std::string>& args,
                                     const std::vector<Flag>& flags) {
  std::vector<std::string> result;
  for (size_t i = 0; i < args.size(); ++i) {
    result.push_back(args[i]);
    if (!IsFlagWord(args[i])) continue;
    const GivenValue given = ReadValue(args, i, flags);
    if (given.argument.name != "max-model-len" || ToLower(given.text) != "auto") continue;
    result.back() = "--max-model-len=-1";
    i += given.num_words - 1;
  }
  return result;
}

bool HasAliasOfKey(std::string_view name) {
  return std::any_of(std::begin(kAliases), std::end(kAliases), [name](const auto& alias) {
    return alias.first.starts_with(std::string(name) + ".");
  });
}

// "-O2", "-O=2" and "-O 2" as a value of --optimization-level.
bool IsLevel(std::string_view word) { return word.size() == 1 && word >= "0" && word <= "3"; }

std::vector<std::string> WithLevels(const std::vector<std::string>& args) {
  std::vector<std::string> result;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (!word.starts_with("-O")) {
      result.push_back(word);
    } else if (word.size() > 2) {
      result.push_back("--optimization-level=" + word.substr(word[2] == '=' ? 3 : 2));
    } else if (i + 1 < args.size() && IsLevel(args[i + 1])) {
      result.push_back("--optimization-level=" + args[++i]);
    } else {
      result.push_back("--optimization-level=");
    }
  }
  return result;
}

}  // namespace

std::string FlagNameOf(std::string_view argument, const std::vector<Flag>& flags) {
  if (!IsFlagWord(argument)) return "";
  if (argument.starts_with("-O")) return "optimization-level";
  std::string name = Parse(argument, flags).name;
  const bool is_twin = name.starts_with("no-") && FindFlag(flags, "--" + name) != nullptr &&
                       FindFlag(flags, "--" + name.substr(3)) == FindFlag(flags, "--" + name);
  return is_twin ? name.substr(3) : name;
}

std::vector<std::string> RewriteFlags(const std::vector<std::string>& given_args,
                                      const std::vector<Flag>& flags) {
  const std::vector<std::string> args = WithLengths(WithLevels(given_args), flags);
  std::vector<std::string> result;
  for (size_t i = 0; i < args.size(); ++i) {
    result.push_back(args[i]);
    if (!IsFlagWord(args[i])) continue;
    const GivenValue given = ReadValue(args, i, flags);
    const Argument& argument = given.argument;
    if (!argument.key.empty() || !HasAliasOfKey(argument.name)) continue;
    const Json object = Json::parse(given.text, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || object.empty()) continue;
    result.pop_back();
    i += given.num_words - 1;
    Json rest = Json::object();
    for (const auto& [key, value] : object.items()) {
      const Argument alias = Parse("--" + argument.name + "." + key, flags);
      if (alias.name == argument.name) {
        rest[key] = value;
        continue;
      }
      result.push_back("--" + alias.name + "=" +
                       (value.is_string() ? value.get<std::string>() : value.dump()));
    }
    if (!rest.empty()) result.push_back("--" + argument.name + "=" + rest.dump());
  }
  return result;
}

StatusOr<std::vector<std::string>> ExpandArguments(const std::vector<std::string>& args,
                                                   const std::vector<Flag>& flags) {
  return MergeKeys(RewriteFlags(args, flags), flags);
}

StatusOr<std::vector<std::string>> MergeKeys(const std::vector<std::string>& words,
                                             const std::vector<Flag>& flags) {
  std::map<std::string, Json> objects;  // of the flags of which keys are given
  for (const std::string& word : words) {
    if (!IsFlagWord(word)) continue;
    const Argument argument = Parse(word, flags);
    if (!argument.key.empty()) objects.emplace(argument.name, Json::object());
  }

  std::vector<std::string> expanded;
  std::map<std::string, size_t> places;  // in `expanded`, of the first argument of each object
  for (size_t i = 0; i < words.size(); ++i) {
    if (!IsFlagWord(words[i])) {
      expanded.push_back(words[i]);
      continue;
    }
    const Argument argument = Parse(words[i], flags);
    const auto object = objects.find(argument.name);
    if (object == objects.end()) {
      const std::string value = argument.value ? "=" + *argument.value : "";
      expanded.push_back(IsAlias(argument, words[i]) ? "--" + argument.name + value : words[i]);
      continue;
    }
    if (places.emplace(argument.name, expanded.size()).second) expanded.emplace_back();
    if (!argument.value &&
        (i + 1 == words.size() || (IsFlagWord(words[i + 1]) && FindFlag(flags, words[i + 1])))) {
      return InvalidArgumentError(words[i] + " needs a value");
    }
    const std::string text = argument.value ? *argument.value : words[++i];
    if (!argument.key.empty()) {
      Merge(Nested(argument.key, text), &object->second);
      continue;
    }
    const Json whole = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!whole.is_object()) {
      return InvalidArgumentError("--" + argument.name + " " + text +
                                  ": must be a JSON object, as keys of it are given too");
    }
    Merge(whole, &object->second);
  }
  for (const auto& [name, place] : places)
    expanded[place] = "--" + name + "=" + objects[name].dump();
  return expanded;
}

}  // namespace tandem
