#pragma once

// The tools of a request as parsers look at them: which names there are, and which JSON a text
// stands for as the value of a parameter.
// Thread: any one at a time; immutable. Owns a copy of the tools.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

class ToolSet {
 public:
  using Json = nlohmann::ordered_json;

  ToolSet();
  // tools: the request's array of {"type": "function", "function": {"name", "parameters"}}, or
  // null.
  explicit ToolSet(const Json& tools);
  ToolSet(ToolSet&&) noexcept;
  ToolSet& operator=(ToolSet&&) noexcept;
  ~ToolSet();

  const Json* all() const { return tools_.get(); }  // null: there are none
  bool Has(std::string_view tool) const;
  // Whether the parameter can only be a text, so that its value may be passed on as it comes. True
  // for parameters that no schema describes.
  bool IsText(std::string_view tool, std::string_view parameter) const;
  // The text as JSON by the parameter's schema: the first of null, integer, number, boolean, object
  // and array that the schema allows and the text can be read as, else a string. An integral number
  // is written as an integer.
  std::string ToJson(std::string_view tool, std::string_view parameter,
                     std::string_view text) const;
  // The same where only the plain "type" of a schema counts, and only integer, number and boolean.
  std::string ToPlainJson(std::string_view tool, std::string_view parameter,
                          std::string_view text) const;
  // What ToJson makes of a text by this schema; null: there is none.
  static std::string JsonBySchema(const Json* schema, std::string_view text);
  // The types that a schema allows, of "null", "integer" … "string"; AllowsText: also without any.
  static bool HasType(const Json& schema, std::string_view type);
  static size_t NumTypes(const Json& schema);
  static bool AllowsText(const Json& schema);
  // The parameter's schema, and those of all parameters, or null.
  const Json* SchemaOf(std::string_view tool, std::string_view parameter) const;
  const Json* PropertiesOf(std::string_view tool) const;

 private:
  std::unique_ptr<const Json> tools_;
};

// The text as the inside of a JSON string.
std::string EscapeJson(std::string_view text);
std::string QuoteJson(std::string_view text);
// The number as JSON has it: "7" of "07", "0.5" of ".5". None of what is infinite or no number.
std::optional<std::string> NumberAsJson(std::string_view text);

}  // namespace tandem
