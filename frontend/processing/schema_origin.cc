#include "frontend/processing/schema_origin.h"

#include <nlohmann/json.hpp>

#include "grammar/schema/schema_fault.h"

namespace tandem {
namespace {

// has: whether a tool's function is the one.
template <typename Has>
SchemaOrigin OriginAmong(const Json& tools, Has has) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& function = tools[i]["function"];
    if (!function.contains("parameters") || !has(function)) continue;
    return {"tools[" + std::to_string(i) + "].function.parameters",
            function["name"].get<std::string>()};
  }
  return {};
}

}  // namespace

std::optional<SchemaOrigin> OriginOfSchema(const std::string& tool_tag, const MessagePlan& plan,
                                           std::optional<size_t> index) {
  const Json* const tools = plan.tools.all();
  if (tools == nullptr) return std::nullopt;
  if (tool_tag.empty()) {
    if (plan.format.choice != MessageFormat::Choice::kNamed) return std::nullopt;
    SchemaOrigin named = OriginAmong(*tools, [&plan](const Json& function) {
      return function["name"] == plan.format.named_tool;
    });
    if (named.field.empty()) return std::nullopt;
    return named;
  }
  const Json tag = Json::parse(tool_tag, nullptr, /*allow_exceptions=*/false);
  const auto schemas = SchemasOfTag(tag);
  if (!index && schemas.size() == 1) index = 0;
  if (!index || *index >= schemas.size()) return std::nullopt;
  return OriginAmong(*tools, [schema = schemas[*index]](const Json& function) {
    return function["parameters"] == *schema;
  });
}

}  // namespace tandem
