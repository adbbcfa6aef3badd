#include "deploy/cli/bench/sweep_params.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/flag_word.h"
#include "common/read_file.h"
#include "common/strings.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using Setting = ParameterSet::Setting;

constexpr std::string_view kNameKey = "_benchmark_name";

// A flag by one of its spellings, without dashes in front.
std::string FlagNamed(std::string_view name) {
  while (name.starts_with('-')) name.remove_prefix(1);
  return WithDashes(name);
}

// The flag that a word sets, without dashes and value; empty for a word that is not a long flag.
std::string FlagName(std::string_view word) {
  if (!word.starts_with("--") || !IsFlagWord(word)) return "";
  return FlagNamed(word.substr(0, word.find('=')));
}

std::string ScalarText(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Setting MakeSetting(const std::string& key, const Json& value) {
  Setting setting{.flag = FlagNamed(key), .text = ScalarText(value), .words = {}};
  if (value.is_null()) return setting;
  if (value.is_boolean()) {
    setting.is_bool = true;
    setting.words = {(value.get<bool>() ? "--" : "--no-") + setting.flag};
    return setting;
  }
  setting.words = {"--" + setting.flag};
  if (value.is_array()) {
    for (const Json& item : value) setting.words.push_back(ScalarText(item));
  } else {
    setting.words.push_back(ScalarText(value));
  }
  return setting;
}

StatusOr<ParameterSet> MakeSet(const Json& object, std::string name) {
  if (!object.is_object()) {
    return InvalidArgumentError("a set of parameters is " + object.dump() +
                                ", must be an object of flags");
  }
  ParameterSet set;
  for (const auto& [key, value] : object.items()) {
    if (key == kNameKey) {
      name = ScalarText(value);
      continue;
    }
    set.settings.push_back(MakeSetting(key, value));
  }
  for (const Setting& setting : set.settings) {
    set.name += (set.name.empty() ? "" : ",") + setting.flag + "=" + setting.text;
  }
  if (!name.empty()) set.name = std::move(name);
  return set;
}

StatusOr<std::string> ReadText(std::string_view json_or_path) {
  const std::string_view text = StripAscii(json_or_path);
  if (text.starts_with('[') || text.starts_with('{')) return std::string(text);
  constexpr int64_t kMaxBytes = 100'000'000;
  StatusOr<std::string> file = ReadFile(std::string(text), kMaxBytes);
  if (!file.ok() && file.status().code() == StatusCode::kNotFound) {
    return InvalidArgumentError("'" + std::string(text) + "' is neither JSON nor a file");
  }
  return file;
}

// Removes the flag from the command in all its forms: "--x v", "--x=v", "--x a b", "--x", "--no-x".
CommandWords Without(const CommandWords& command, const Setting& setting) {
  CommandWords rest;
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string name = FlagName(command[i]);
    if (name != setting.flag && name != "no-" + setting.flag) {
      rest.push_back(command[i]);
      continue;
    }
    if (setting.is_bool || name != setting.flag || command[i].find('=') != std::string::npos) {
      continue;
    }
    const bool is_list = setting.words.size() > 2;
    for (size_t num_values = 0; i + 1 < command.size() && !IsFlagWord(command[i + 1]);
         ++num_values) {
      if (num_values > 0 && !is_list) break;
      ++i;
    }
  }
  return rest;
}

bool LinksHold(const std::vector<VariableLink>& links, const ParameterSet& serve,
               const ParameterSet& bench) {
  return std::all_of(links.begin(), links.end(), [&](const VariableLink& link) {
    return serve.Find(link.serve)->text == bench.Find(link.bench)->text;
  });
}

Status CheckLinked(const std::vector<ParameterSet>& sets, const std::string& flag,
                   std::string_view list) {
  for (const ParameterSet& set : sets) {
    if (set.Find(flag) != nullptr) continue;
    return InvalidArgumentError("--link-vars has '" + flag + "', which a set of --" +
                                std::string(list) + " does not have");
  }
  return OkStatus();
}

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("-_./:=,+@%").find(c) != std::string_view::npos;
}

}  // namespace

const Setting* ParameterSet::Find(std::string_view flag) const {
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [&](const Setting& setting) { return setting.flag == flag; });
  return found == settings.end() ? nullptr : &*found;
}

StatusOr<std::vector<ParameterSet>> ParseParameterSets(std::string_view json_or_path) {
  if (StripAscii(json_or_path).empty()) return std::vector<ParameterSet>{ParameterSet{}};
  ASSIGN_OR_RETURN(const std::string text, ReadText(json_or_path));
  const Json root = Json::parse(text, nullptr, false);
  if (!root.is_array() && !root.is_object()) {
    return InvalidArgumentError("parameters must be a JSON list of objects");
  }
  std::vector<ParameterSet> sets;
  for (const auto& [key, value] : root.items()) {
    ASSIGN_OR_RETURN(ParameterSet set, MakeSet(value, root.is_object() ? key : ""));
    sets.push_back(std::move(set));
  }
  if (sets.empty()) return InvalidArgumentError("the list of parameters is empty");
  return sets;
}

CommandWords WithSettings(CommandWords command, const ParameterSet& set) {
  for (const Setting& setting : set.settings) {
    command = Without(command, setting);
    command.insert(command.end(), setting.words.begin(), setting.words.end());
  }
  return command;
}

StatusOr<std::vector<VariableLink>> ParseLinks(std::string_view text) {
  std::vector<VariableLink> links;
  if (StripAscii(text).empty()) return links;
  for (const std::string_view item : Split(text, ',')) {
    const std::vector<std::string_view> sides = Split(StripAscii(item), '=');
    if (sides.size() != 2 || sides[0].empty() || sides[1].empty()) {
      return InvalidArgumentError("--link-vars has '" + std::string(item) +
                                  "', must be SERVE_FLAG=BENCH_FLAG");
    }
    links.push_back({FlagNamed(sides[0]), FlagNamed(sides[1])});
  }
  return links;
}

StatusOr<std::vector<Combination>> CrossParameters(const std::vector<ParameterSet>& serve,
                                                   const std::vector<ParameterSet>& bench,
                                                   const std::vector<VariableLink>& links) {
  for (const VariableLink& link : links) {
    RETURN_IF_ERROR(CheckLinked(serve, link.serve, "serve-params"));
    RETURN_IF_ERROR(CheckLinked(bench, link.bench, "bench-params"));
  }
  std::vector<Combination> combinations;
  for (size_t i = 0; i < serve.size(); ++i) {
    Combination combination{.serve_idx = i, .bench_idx = {}};
    for (size_t k = 0; k < bench.size(); ++k) {
      if (LinksHold(links, serve[i], bench[k])) combination.bench_idx.push_back(k);
    }
    if (!combination.bench_idx.empty()) combinations.push_back(std::move(combination));
  }
  return combinations;
}

StatusOr<CommandWords> SplitShellWords(std::string_view text) {
  CommandWords words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      // Within double quotes a backslash escapes only " and itself.
      if (quote == '"' && text[i + 1] != '"' && text[i + 1] != '\\') word += c;
      word += text[++i];
      in_word = true;
    } else if (quote != 0) {
      word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0) return InvalidArgumentError("a quote is not closed in: " + std::string(text));
  if (in_word) words.push_back(std::move(word));
  return words;
}

std::string ShellCommand(const CommandWords& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && std::all_of(word.begin(), word.end(), IsPlain)) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

std::optional<std::string> FlagValue(const CommandWords& command, std::string_view flag) {
  std::optional<std::string> value;
  for (size_t i = 0; i < command.size(); ++i) {
    if (FlagName(command[i]) != flag) continue;
    const size_t equals = command[i].find('=');
    if (equals != std::string::npos) {
      value = command[i].substr(equals + 1);
    } else if (i + 1 < command.size()) {
      value = command[i + 1];
    }
  }
  return value;
}

}  // namespace tandem
