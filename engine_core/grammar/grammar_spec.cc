#include "engine_core/grammar/grammar_spec.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kAnyObject[] = R"({"type": "object"})";

// A grammar of these texts alone.
std::string GrammarOfChoices(const std::vector<std::string>& choices) {
  std::string grammar = "root ::= ";
  for (size_t i = 0; i < choices.size(); ++i) {
    grammar += i == 0 ? "\"" : " | \"";
    for (const char c : choices[i]) {
      switch (c) {
        case '\n':
          grammar += "\\n";
          break;
        case '\r':
          grammar += "\\r";
          break;
        case '"':
        case '\\':
          grammar += '\\';
          [[fallthrough]];
        default:
          grammar += c;
      }
    }
    grammar += '"';
  }
  return grammar;
}

StatusOr<std::string> SchemaText(const wire::RawValue& json) {
  const Json value = Json::from_msgpack(json.packed, /*strict=*/true, /*allow_exceptions=*/false);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return InvalidArgumentError("structured_outputs.json must be an object or a text");
}

// The bytes of one blank as a regular expression writes it, at the beginning of a pattern; 0: none.
size_t BlankBytes(std::string_view pattern) {
  if (pattern.empty()) return 0;
  if (pattern[0] != '\\')
    return std::string_view(" \n\r\t").find(pattern[0]) != pattern.npos ? 1 : 0;
  return pattern.size() > 1 && std::string_view("nrst").find(pattern[1]) != pattern.npos ? 2 : 0;
}

// The same for one blank or a class of them.
size_t BlanksBytes(std::string_view pattern) {
  if (!pattern.starts_with('[')) return BlankBytes(pattern);
  size_t at = 1;
  while (const size_t bytes = BlankBytes(pattern.substr(at))) at += bytes;
  return at > 1 && pattern.substr(at).starts_with(']') ? at + 1 : 0;
}

// xgrammar knows no patterns between tokens; what it can express is how many blanks there may be.
StatusOr<JsonBlanks> BlanksOf(const wire::StructuredOutputs& outputs,
                              const GrammarDefaults& defaults) {
  if (outputs.whitespace_pattern) {
    const std::string& pattern = *outputs.whitespace_pattern;
    if (pattern.empty()) return JsonBlanks::kNone;
    const size_t bytes = BlanksBytes(pattern);
    const std::string_view count = std::string_view(pattern).substr(bytes);
    if (bytes > 0 && count == "*") return JsonBlanks::kAny;
    if (bytes > 0 && (count == "?" || count == "{0,1}")) return JsonBlanks::kOne;
    return UnimplementedError("whitespace_pattern is \"" + pattern +
                              "\"; it may be empty (no blanks), \\s? (at most one at a time) or "
                              "\\s* (any), or be left out");
  }
  const bool fixed = outputs.disable_any_whitespace || defaults.disable_any_whitespace;
  return fixed ? JsonBlanks::kPython : JsonBlanks::kAny;
}

int NumConstraints(const wire::StructuredOutputs& outputs) {
  return (outputs.json.is_nil() ? 0 : 1) + (outputs.regex ? 1 : 0) + (outputs.choice ? 1 : 0) +
         (outputs.grammar ? 1 : 0) + (outputs.json_object.value_or(false) ? 1 : 0) +
         (outputs.structural_tag ? 1 : 0);
}

Status CheckBackend(const std::optional<std::string>& backend) {
  if (!backend || backend->empty() || *backend == "auto" || *backend == "xgrammar") {
    return OkStatus();
  }
  return UnimplementedError("the structured outputs backend \"" + *backend +
                            "\" is not built; xgrammar is");
}

}  // namespace

StatusOr<GrammarSpec> MakeGrammarSpec(const wire::StructuredOutputs& outputs,
                                      const GrammarDefaults& defaults) {
  RETURN_IF_ERROR(CheckBackend(outputs.backend));
  if (const int count = NumConstraints(outputs); count != 1) {
    return InvalidArgumentError("structured_outputs has " + std::to_string(count) +
                                " constraints, must have exactly one of json, regex, choice, "
                                "grammar, json_object and structural_tag");
  }
  ASSIGN_OR_RETURN(const JsonBlanks blanks, BlanksOf(outputs, defaults));
  GrammarSpec spec;
  if (!outputs.json.is_nil()) {
    ASSIGN_OR_RETURN(std::string text, SchemaText(outputs.json));
    spec = {GrammarKind::kJsonSchema, blanks, std::move(text)};
  } else if (outputs.json_object.value_or(false)) {
    spec = {GrammarKind::kJsonSchema, blanks, kAnyObject};
  } else if (outputs.regex) {
    spec = {GrammarKind::kRegex, JsonBlanks::kAny, *outputs.regex};
  } else if (outputs.choice) {
    if (outputs.choice->empty()) return InvalidArgumentError("choice is an empty list");
    spec = {GrammarKind::kGrammar, JsonBlanks::kAny, GrammarOfChoices(*outputs.choice)};
  } else if (outputs.grammar) {
    spec = {GrammarKind::kGrammar, JsonBlanks::kAny, *outputs.grammar};
  } else {
    spec = {GrammarKind::kStructuralTag, blanks, *outputs.structural_tag};
  }
  return spec;
}

}  // namespace tandem
