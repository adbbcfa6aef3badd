#include "deploy/cli/config_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "common/read_file.h"
#include "common/strings.h"
#include "deploy/cli/arguments.h"
#include "deploy/cli/command_line.h"
#include "deploy/cli/vllm_flags.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr int kMaxDepth = 16;
constexpr int kMaxValues = 10'000;  // aliases can repeat a value endlessly

// A plain scalar's type by YAML 1.1's rules, which vLLM's reader follows; a quoted one is text.
Json ScalarToJson(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;
  const std::string lower = ToLower(text);
  if (lower.empty() || lower == "~" || lower == "null") return nullptr;
  for (const char* word : {"true", "yes", "on"}) {
    if (lower == word) return true;
  }
  for (const char* word : {"false", "no", "off"}) {
    if (lower == word) return false;
  }
  if (const auto whole = ParseNumber<int64_t>(text)) return *whole;
  // What a double would round, such as a key of many digits, and "inf" and "nan" stay text.
  const bool is_whole = text.find_first_not_of("+-0123456789") == text.npos;
  const auto number = ParseNumber<double>(text);
  if (number && std::isfinite(*number) && !is_whole) return *number;
  return text;
}

class Converter {
 public:
  StatusOr<Json> ToJson(const YAML::Node& node, int depth = 0) {
    if (depth > kMaxDepth) {
      return InvalidArgumentError("is nested deeper than " + std::to_string(kMaxDepth) + " levels");
    }
    if (++num_values_ > kMaxValues) {
      return InvalidArgumentError("has more than " + WithCommas(kMaxValues) + " values");
    }
    if (node.IsMap()) {
      Json object = Json::object();
      for (const auto& pair : node) {
        ASSIGN_OR_RETURN(object[pair.first.as<std::string>()], ToJson(pair.second, depth + 1));
      }
      return object;
    }
    if (node.IsSequence()) {
      Json list = Json::array();
      for (const YAML::Node& item : node) {
        ASSIGN_OR_RETURN(Json value, ToJson(item, depth + 1));
        list.push_back(std::move(value));
      }
      return list;
    }
    return node.IsScalar() ? ScalarToJson(node) : Json(nullptr);
  }

 private:
  int num_values_ = 0;
};

std::string Text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool TakesList(const std::string& name, const std::vector<Flag>& flags) {
  if (const Flag* flag = FindFlag(flags, "--" + name)) return flag->is_list();
  const VllmFlag* row = FindVllmFlag("--" + name);
  return row != nullptr && row->kind == VllmFlagKind::kList;
}

bool IsKnown(const std::string& key, const std::vector<Flag>& flags) {
  const std::string name = "--" + FlagNameOf("--" + key, flags);
  return FindFlag(flags, name) != nullptr || FindVllmFlag(name) != nullptr;
}

StatusOr<std::vector<std::string>> WordsOf(const std::string& key, const Json& value,
                                           const std::vector<Flag>& flags) {
  const std::string name = FlagNameOf("--" + key, flags);
  if (name == "config" || name == "check-config") {
    return InvalidArgumentError(key + " is for the command line only");
  }
  if (!IsKnown(key, flags)) return UnknownNameError(flags, "--" + key);
  std::vector<std::string> words;
  if (value.is_null() || (value.is_array() && value.empty())) return words;
  const auto add = [&](const Json& item) { words.push_back("--" + key + "=" + Text(item)); };
  if (value.is_array() && TakesList(name, flags)) {
    std::for_each(value.begin(), value.end(), add);
  } else {
    add(value);
  }
  return words;
}

}  // namespace

StatusOr<std::vector<ConfigEntry>> ParseConfigFile(const std::string& text, const std::string& name,
                                                   const std::vector<Flag>& flags) {
  std::vector<ConfigEntry> entries;
  std::set<std::string> seen;
  if (const size_t pos = FindInvalidUtf8(text); pos != text.npos) {
    return InvalidArgumentError(name + ": not UTF-8 at byte " + std::to_string(pos));
  }
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      return InvalidArgumentError(name + ":" + std::to_string(documents[1].Mark().line + 1) +
                                  ": a second document; the file must be one mapping");
    }
    if (documents.empty() || documents.front().IsNull()) return entries;
    const YAML::Node& root = documents.front();
    if (!root.IsMap()) return InvalidArgumentError(name + ": must be a mapping of flags to values");
    for (const auto& pair : root) {
      const std::string origin = name + ":" + std::to_string(pair.first.Mark().line + 1);
      const auto key = pair.first.as<std::string>();
      if (!seen.insert(FlagNameOf("--" + key, flags)).second) {
        return InvalidArgumentError(origin + ": " + key + " is given twice");
      }
      const StatusOr<Json> value = Converter().ToJson(pair.second);
      if (!value.ok()) return value.status().WithContext(origin);
      StatusOr<std::vector<std::string>> words = WordsOf(key, *value, flags);
      if (!words.ok()) return words.status().WithContext(origin);
      if (!words->empty()) entries.push_back({*std::move(words), origin});
    }
  } catch (const YAML::Exception& error) {
    return InvalidArgumentError(name + ":" + std::to_string(error.mark.line + 1) + ": " +
                                error.msg);
  }
  return entries;
}

StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path,
                                                  const std::vector<Flag>& flags) {
  const StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) return text.status().WithContext("--config");
  return ParseConfigFile(*text, path, flags);
}

}  // namespace tandem
