// A JSON schema of a response or of a tool: refused with a message, or made part of what an output
// is held to.

#include <nlohmann/json.hpp>
#include <string>

#include "common/check.h"
#include "frontend/openai/generation_request.h"
#include "frontend/openai/json.h"
#include "frontend/openai/structured_outputs.h"
#include "frontend/parsers/tool_grammar.h"
#include "grammar/schema/json_pattern.h"
#include "grammar/schema/json_references.h"
#include "grammar/schema/json_schema_check.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

// The same as a request's own constraint; null: it is refused, with a message.
Json OwnConstraint(const char* key, const Json& schema) {
  GenerationRequest request;
  Json value = {{key, schema.is_object() ? schema : Json(DumpJson(schema))}};
  const Status status = ParseStructuredOutputs(value, &request);
  CHECK(status.ok() || !status.message().empty());
  if (!status.ok()) return nullptr;
  const auto outputs = StructuredOutputsOf(request);
  CHECK(outputs.ok() || !outputs.status().message().empty());
  return outputs.ok() && *outputs ? ConstraintJson(**outputs) : Json();
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  FuzzInput input(data, size);
  const auto parsers = ToolParsers();
  ToolGrammarInput in;
  in.parser = &parsers[input.Below(parsers.size())];
  const size_t options = input.Below(256);
  in.choice = static_cast<MessageFormat::Choice>(options % 4);
  in.named_tool = "f";
  in.parallel_calls = options / 4 % 2 == 0;
  in.strict_level = static_cast<StrictLevel>(options / 8 % 3);
  in.is_harmony = options / 24 % 2 == 1;
  const auto parsed = ParseJson(input.Rest(), {.max_depth = kMaxSchemaDepth});
  if (!parsed.ok()) return 0;
  const Json& schema = **parsed;
  const Status checked = CheckJsonSchema(schema);
  CHECK(checked.ok() || !checked.message().empty());
  const Status of_tag = CheckSchemasOfTag(schema);
  CHECK(of_tag.ok() || !of_tag.message().empty());
  if (schema.is_string()) {
    const auto& text = schema.get_ref<const std::string&>();
    for (const char c : InPrintableAscii(text)) CHECK(c >= ' ' && c <= '~');
    (void)MatchesUnescapedText(text);
  }
  Json named = schema;
  GiveTargetsNames(&named);
  const Json function = {{"name", "f"}, {"strict", options / 48 % 2 == 1}, {"parameters", schema}};
  const Json other = {{"name", "g"}, {"parameters", schema}};
  const Json tools = Json::array({{{"type", "function"}, {"function", function}},
                                  {{"type", "function"}, {"function", other}}});
  if (schema.is_object()) in.tools = &tools;
  if (in.tools == nullptr) in.choice = MessageFormat::Choice::kNone;
  if (options / 96 > 0) {
    in.own = OwnConstraint(options / 96 == 1 ? "json" : "structural_tag", schema);
  }
  const auto grammar = MakeToolGrammar(in);
  CHECK(grammar.ok() || !grammar.status().message().empty());
  if (grammar.ok()) (void)DumpJson(grammar->structured_outputs);
  return 0;
}
