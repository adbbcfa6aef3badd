#pragma once

// How the text of a field of a response_template becomes a value: the forms that transformers
// names. Thread: immutable, any. Failure: a text of another form.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "frontend/parsers/partial_regex.h"

namespace tandem {

struct FieldReader {
  using Json = nlohmann::ordered_json;
  enum class Form { kText, kInteger, kFloat, kBoolean, kJson, kXmlInline, kKeyedLines };
  Form form = Form::kText;
  bool strips = true;
  // kJson: strings between other marks than quotes, keys without quotes, texts that are no JSON.
  std::vector<std::pair<std::string, std::string>> string_marks = {};
  bool has_bare_keys = false;
  bool allows_other_texts = false;
  // kXmlInline: a match with the groups key and value for each member.
  std::optional<PartialRegex> member = {};
  bool merges_members = false;  // those of one key, into a list
  // kKeyedLines
  std::string line_end = "\n";
  std::string key_end = ":";
  std::unique_ptr<FieldReader> values = {};  // of each member; null: texts as they are

  // name: null is text; args: null is none; place: of messages. InvalidArgument: what is wrong.
  static StatusOr<FieldReader> Parse(const std::string& place, const Json* name, const Json* args,
                                     int depth = 0);
  // nullopt: the text has another form.
  std::optional<Json> Read(std::string_view text, RegexBudget* budget) const;
};

}  // namespace tandem
