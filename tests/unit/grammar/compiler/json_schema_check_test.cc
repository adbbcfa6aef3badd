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

TEST_CASE("keywords that would be left out beside others are refused") {
  const auto message = [](const char* schema) { return CheckJsonSchema(schema).message(); };
  CHECK_THAT(message(R"({"properties": {}, "anyOf": [{"type": "object"}]})"),
             Contains("\"properties\" beside \"anyOf\" at #,"));
  CHECK_THAT(message(R"({"type": "string", "oneOf": [{"type": "string"}], "maxLength": 3})"),
             Contains("\"maxLength\" beside \"oneOf\""));
  CHECK_THAT(message(R"({"items": {"pattern": "a"}})"),
             Contains("\"pattern\" without \"type\" at #/items,"));
  CHECK_THAT(message(R"({"required": ["a"]})"), Contains("\"required\" without \"type\""));
  CHECK_THAT(message(R"({"type": "object", "properties": {"a": {}}, "required": ["a", "b"]})"),
             Contains("the name \"b\" in \"required\""));
  CHECK_THAT(message(R"({"type": "string", "enum": ["a", 1]})"), Contains("\"type\" excludes"));
  CHECK_THAT(message(R"({"type": ["integer", "null"], "const": 1.5})"), Contains("excludes"));
  for (const char* schema :
       {R"({"type": "string", "const": "a", "enum": ["a"], "title": "t", "default": "a"})",
        R"({"type": ["integer", "null"], "enum": [1, 2.0, null]})",
        R"({"type": "number", "enum": [1, 1.5]})", R"({"type": "object", "const": {"a": [true]}})",
        R"({"type": "object", "anyOf": [{"type": "object"}], "description": "d"})",
        R"({"$ref": "#/$defs/a", "minimum": 3, "$defs": {"a": {"type": "integer"}}})",
        R"({"allOf": [{"type": "object"}], "additionalProperties": true})",
        R"({"propertyNames": {"pattern": "a"}, "type": "object"})",
        R"({"properties": {"a": {}}, "required": ["a"]})"}) {
    CAPTURE(schema);
    CHECK(message(schema) == "");
  }
}

TEST_CASE("patterns that make no JSON are refused") {
  const auto message = [](const char* schema) { return CheckJsonSchema(schema).message(); };
  CHECK_THAT(message(R"({"type": "string", "pattern": "^\"$"})"),
             Contains(R"(the pattern "^\"$" at #,)"));
  CHECK_THAT(message(R"({"type": "object", "patternProperties": {"\\n": {}}})"),
             Contains("at #/patternProperties,"));
  CHECK(message(R"({"type": "string", "pattern": "^[^\"]*$"})") == "");
}

TEST_CASE("names of properties and values are not keywords") {
  CHECK(CheckJsonSchema(R"({"properties": {"not": {}, "if": {"const": {"not": 1}}}})").ok());
  CHECK(CheckJsonSchema(R"({"enum": [{"contains": 1}], "uniqueItems": false})").ok());
  CHECK(CheckJsonSchema("true").ok());
}

}  // namespace
}  // namespace tandem
