#pragma once

// The `response_template` of a checkpoint's tokenizer_config.json, as transformers defines it: by
// which marks a text falls into thinking, content and calls of tools, and how a call's name and
// arguments are read out of its part. Marks are words or regular expressions of Python.
//   {"start_anchor": "<|im_start|>assistant\n", "fields": {
//     "thinking": {"open": "<think>", "close": "</think>"},
//     "tool_calls": {"open_pattern": "<call:(?P<name>\\w+)>", "close": "</call>", "repeats": true,
//                    "content": "json", "transform": {"type": "function", "function":
//                      {"name": "{name}", "arguments": "{content}"}}},
//     "content": {}}}
// The field without an opening mark has what stands outside the others; without one of those
// content is added. Thread: immutable, any. Parse: InvalidArgument with the key that is wrong or
// that means something else than these three fields.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "frontend/parsers/field_reader.h"
#include "frontend/parsers/partial_regex.h"
#include "frontend/parsers/tool_set.h"

namespace tandem {

class ResponseTemplate {
 public:
  using Json = nlohmann::ordered_json;
  enum class Part { kThinking, kContent, kCalls };
  struct Mark {
    std::optional<PartialRegex> pattern;
    std::vector<std::string> words;  // empty: it is a regular expression
    std::string expression;          // that one
  };
  struct Field {
    Part part = Part::kContent;
    std::string name;
    Mark open;   // without a pattern: of what stands outside the other fields
    Mark close;  // without a pattern: it lasts to the end
    FieldReader reader;
    Json transform;  // null: there is none
    bool transforms_each = false;
  };
  struct Call {
    std::string name;
    std::string arguments;
  };

  static StatusOr<ResponseTemplate> Parse(const Json& metadata);

  // The first field of a name comes first; all have different parts.
  const std::vector<Field>& fields() const { return fields_; }
  const Field* Find(Part part) const;
  // The field of what stands outside the others; null: that is dropped.
  const Field* outside() const;
  // What of a prompt belongs to the message: what follows the last mark of its start, or all.
  std::string_view MessageIn(std::string_view prompt) const;
  const std::vector<std::string>& start_words() const { return start_.words; }

  // The calls that a part of calls stands for; empty: it is none, or has one that is not whole.
  // groups: of the opening mark.
  static std::vector<Call> ReadCalls(const Field& field, std::string_view text,
                                     const std::vector<std::pair<std::string, std::string>>& groups,
                                     const ToolSet& tools, RegexBudget* budget);

 private:
  ResponseTemplate() = default;
  Mark start_;
  std::vector<Field> fields_;
};

}  // namespace tandem
