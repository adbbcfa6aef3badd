#include "frontend/parsers/tool_set.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/strings.h"

namespace tandem {
namespace {

using Json = ToolSet::Json;

enum Type { kNull, kInteger, kNumber, kBoolean, kObject, kArray, kString, kNumTypes };
using Types = std::array<bool, kNumTypes>;
constexpr std::array<std::string_view, kNumTypes> kTypeNames = {
    "null", "integer", "number", "boolean", "object", "array", "string"};
constexpr int kMaxSchemaDepth = 16;

const Json* Member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

void AddTypeNamed(const Json& name, Types* types) {
  if (!name.is_string()) return;
  for (size_t i = 0; i < kTypeNames.size(); ++i) {
    if (name.get_ref<const std::string&>() == kTypeNames[i]) (*types)[i] = true;
  }
}

void AddTypeOf(const Json& value, Types* types) {
  if (value.is_null()) (*types)[kNull] = true;
  if (value.is_number_integer()) (*types)[kInteger] = true;
  if (value.is_number_float()) (*types)[kNumber] = true;
  if (value.is_boolean()) (*types)[kBoolean] = true;
  if (value.is_object()) (*types)[kObject] = true;
  if (value.is_array()) (*types)[kArray] = true;
  if (value.is_string()) (*types)[kString] = true;
}

void AddTypes(const Json& schema, int depth, Types* types) {
  if (!schema.is_object() || depth > kMaxSchemaDepth) return;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_array()) {
      for (const Json& name : *type) AddTypeNamed(name, types);
    } else {
      AddTypeNamed(*type, types);
    }
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const auto list = schema.find(key);
    if (list == schema.end() || !list->is_array()) continue;
    for (const Json& part : *list) AddTypes(part, depth + 1, types);
  }
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    for (const Json& value : *values) AddTypeOf(value, types);
  }
}

Types TypesOf(const Json* schema) {
  Types types = {};
  if (schema != nullptr) AddTypes(*schema, 0, &types);
  return types;
}

std::optional<std::string> AsInteger(std::string_view text) {
  if (const auto value = ParseNumber<int64_t>(text)) return std::to_string(*value);
  const auto number = ParseNumber<double>(text);
  if (!number || *number != std::floor(*number) || std::abs(*number) > 9e15) return std::nullopt;
  return std::to_string(static_cast<int64_t>(*number));
}

std::optional<std::string> AsNumber(std::string_view text) {
  if (auto integer = AsInteger(text)) return integer;
  const auto number = ParseNumber<double>(text);
  if (!number || !std::isfinite(*number)) return std::nullopt;
  return Json(*number).dump();
}

std::optional<std::string> AsBoolean(std::string_view text) {
  const std::string lower = ToLower(text);
  if (lower == "true" || lower == "1") return "true";
  if (lower == "false" || lower == "0") return "false";
  return std::nullopt;
}

std::optional<std::string> AsContainer(std::string_view text, bool object) {
  if (text.empty() || text.front() != (object ? '{' : '[')) return std::nullopt;
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return std::nullopt;
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

ToolSet::ToolSet() = default;
ToolSet::ToolSet(const Json& tools) : tools_(std::make_unique<const Json>(tools)) {}
ToolSet::ToolSet(ToolSet&&) noexcept = default;
ToolSet& ToolSet::operator=(ToolSet&&) noexcept = default;
ToolSet::~ToolSet() = default;

namespace {

// The function of that name, or null.
const Json* FindFunction(const Json* tools, std::string_view name) {
  if (tools == nullptr || !tools->is_array()) return nullptr;
  for (const Json& entry : *tools) {
    const Json* const function = Member(entry, "function");
    const Json* const own_name = function == nullptr ? nullptr : Member(*function, "name");
    if (own_name != nullptr && *own_name == name) return function;
  }
  return nullptr;
}

}  // namespace

bool ToolSet::Has(std::string_view tool) const {
  return FindFunction(tools_.get(), tool) != nullptr;
}

const Json* ToolSet::PropertiesOf(std::string_view tool) const {
  const Json* schema = FindFunction(tools_.get(), tool);
  for (const char* key : {"parameters", "properties"}) {
    if (schema != nullptr) schema = Member(*schema, key);
  }
  return schema;
}

const Json* ToolSet::SchemaOf(std::string_view tool, std::string_view parameter) const {
  const Json* const properties = PropertiesOf(tool);
  return properties == nullptr ? nullptr : Member(*properties, parameter);
}

bool ToolSet::HasType(const Json& schema, std::string_view type) {
  const Types types = TypesOf(&schema);
  const auto name = std::find(kTypeNames.begin(), kTypeNames.end(), type);
  return name != kTypeNames.end() && types[static_cast<size_t>(name - kTypeNames.begin())];
}

size_t ToolSet::NumTypes(const Json& schema) {
  const Types types = TypesOf(&schema);
  return static_cast<size_t>(std::count(types.begin(), types.end(), true));
}

bool ToolSet::AllowsText(const Json& schema) {
  const Types types = TypesOf(&schema);
  return types[kString] || types == Types{};
}

bool ToolSet::IsText(std::string_view tool, std::string_view parameter) const {
  Types types = TypesOf(SchemaOf(tool, parameter));
  types[kString] = false;
  return types == Types{};
}

std::string ToolSet::ToJson(std::string_view tool, std::string_view parameter,
                            std::string_view text) const {
  return JsonBySchema(SchemaOf(tool, parameter), text);
}

std::string ToolSet::JsonBySchema(const Json* schema, std::string_view text) {
  const Types types = TypesOf(schema);
  const std::string_view bare = StripAscii(text);
  std::optional<std::string> json;
  if (types[kNull] && ToLower(bare) == "null") json = "null";
  if (!json && types[kInteger]) json = AsInteger(bare);
  if (!json && types[kNumber]) json = AsNumber(bare);
  if (!json && types[kBoolean]) json = AsBoolean(bare);
  if (!json && types[kObject]) json = AsContainer(bare, true);
  if (!json && types[kArray]) json = AsContainer(bare, false);
  return json ? *json : QuoteJson(text);
}

std::string ToolSet::ToPlainJson(std::string_view tool, std::string_view parameter,
                                 std::string_view text) const {
  const Json* const schema = SchemaOf(tool, parameter);
  const Json* const type = schema == nullptr ? nullptr : Member(*schema, "type");
  std::optional<std::string> json;
  if (type != nullptr && *type == "integer") json = AsInteger(text);
  if (type != nullptr && *type == "number") json = AsNumber(text);
  if (type != nullptr && *type == "boolean") json = AsBoolean(text);
  return json ? *json : QuoteJson(text);
}

std::string EscapeJson(std::string_view text) {
  const std::string quoted = QuoteJson(text);
  return quoted.substr(1, quoted.size() - 2);
}

std::string QuoteJson(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::string> NumberAsJson(std::string_view text) {
  const bool may_be =
      !text.empty() && std::string_view("-0123456789").find(text.front()) != text.npos;
  return may_be && Json::accept(text) ? std::string(text) : AsNumber(text);
}

}  // namespace tandem
