#include "common/flag_json.h"

#include "common/log_json.h"

namespace tandem {
namespace {

template <class T>
bool Holds(const Flag& flag) {
  return std::holds_alternative<T*>(flag.target) ||
         std::holds_alternative<std::optional<T>*>(flag.target);
}

std::string_view TypeOf(const Flag& flag) {
  if (flag.is_list()) return "texts";
  if (flag.is_bool()) return "bool";
  if (Holds<int64_t>(flag)) return "int";
  return Holds<double>(flag) ? "float" : "text";
}

void AddText(std::string_view name, std::string_view value, std::string* json) {
  *json += "\"" + std::string(name) + "\": ";
  AppendJsonText(value, json);
  *json += ", ";
}

void AddFlag(const Flag& flag, std::string* json) {
  *json += "{";
  AddText("name", flag.name, json);
  AddText("short", flag.rules.short_name, json);
  AddText("type", TypeOf(flag), json);
  AddText("default", flag.rules.secret ? "" : FlagValueText(flag).value_or(""), json);
  *json += "\"choices\": [";
  for (size_t i = 0; i < flag.rules.choices.size(); ++i) {
    if (i > 0) *json += ", ";
    AppendJsonText(flag.rules.choices[i], json);
  }
  *json += "], ";
  AddText("env", flag.rules.env.empty() ? "" : "TANDEM_" + std::string(flag.rules.env), json);
  *json += std::string("\"positional\": ") + (flag.rules.positional ? "true" : "false") + ", ";
  AddText("help", flag.help, json);
  json->resize(json->size() - 2);
  *json += "}";
}

}  // namespace

std::string FlagTableJson(const std::vector<Flag>& flags, std::string_view about) {
  std::string json = "{";
  AddText("about", about, &json);
  json += "\"flags\": [\n";
  for (size_t i = 0; i < flags.size(); ++i) {
    if (i > 0) json += ",\n";
    AddFlag(flags[i], &json);
  }
  return json + "\n]}\n";
}

}  // namespace tandem
