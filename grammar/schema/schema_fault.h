#pragma once

// Which schema of a structural tag is wrong, as a message: the program that compiles knows the
// schema, and the frontend the field of the request that the schema is from.
// Pure; any thread; depth of recursion: the tag's.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// In the order in which they stand in the tag, in its older form or in today's.
std::vector<const nlohmann::ordered_json*> SchemasOfTag(const nlohmann::ordered_json& tag);

struct SchemaFault {
  size_t index = 0;  // among SchemasOfTag
  std::string reason;
};

// "schema 2 of the structural tag: <reason>"; schemas are counted from 1 there.
std::string FaultMessage(const SchemaFault& fault);
// nullopt: the message is another.
std::optional<SchemaFault> ReadFault(std::string_view message);

}  // namespace tandem
