#include "grammar/compiler/json_schema_check.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("keywords that would be left out are refused, wherever a schema stands") {
  const auto message = [](const char* schema) { return CheckJsonSchema(schema).message(); };
  CHECK_THAT(message(R"({"not": {}})"), Contains("\"not\" at #,"));
  CHECK_THAT(message(R"({"properties": {"a": {"if": {}}}})"),
             Contains("\"if\" at #/properties/a,"));
  CHECK_THAT(message(R"({"items": {"uniqueItems": true}})"),
             Contains("\"uniqueItems\" at #/items,"));
  CHECK_THAT(message(R"({"items": [{"contains": {}}]})"), Contains("\"contains\""));
  CHECK_THAT(message(R"({"$defs": {"x": {"anyOf": [{"dependentRequired": {}}]}}})"),
             Contains("#/$defs/x/anyOf,"));
  CHECK_THAT(message(R"({"additionalProperties": {"dependentSchemas": {}}})"),
             Contains("dependentSchemas"));
  CHECK_THAT(message("{"), Contains("not JSON"));
  CHECK_THAT(message("3"), Contains("an object or a boolean"));
}

TEST_CASE("names of properties and values are not keywords") {
  CHECK(CheckJsonSchema(R"({"properties": {"not": {}, "if": {"const": {"not": 1}}}})").ok());
  CHECK(CheckJsonSchema(R"({"enum": [{"contains": 1}], "uniqueItems": false})").ok());
  CHECK(CheckJsonSchema("true").ok());
}

}  // namespace
}  // namespace tandem
