#include "grammar/schema/schema_fault.h"

#include <nlohmann/json.hpp>

#include "common/strings.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBefore = "schema ";
constexpr std::string_view kAfter = " of the structural tag: ";

void AppendSchemas(const Json& part, std::vector<const Json*>* schemas) {
  if (!part.is_structured()) return;
  for (auto it = part.begin(); it != part.end(); ++it) {
    if (part.is_object() && (it.key() == "json_schema" || it.key() == "schema")) {
      schemas->push_back(&*it);
    } else {
      AppendSchemas(*it, schemas);
    }
  }
}

}  // namespace

std::vector<const Json*> SchemasOfTag(const Json& tag) {
  std::vector<const Json*> schemas;
  AppendSchemas(tag, &schemas);
  return schemas;
}

std::string FaultMessage(const SchemaFault& fault) {
  return std::string(kBefore) + std::to_string(fault.index + 1) + std::string(kAfter) +
         fault.reason;
}

std::optional<SchemaFault> ReadFault(std::string_view message) {
  if (!message.starts_with(kBefore)) return std::nullopt;
  message.remove_prefix(kBefore.size());
  const size_t end = message.find(kAfter);
  if (end == message.npos) return std::nullopt;
  const auto number = ParseNumber<size_t>(std::string(message.substr(0, end)));
  if (!number || *number == 0) return std::nullopt;
  return SchemaFault{*number - 1, std::string(message.substr(end + kAfter.size()))};
}

}  // namespace tandem
