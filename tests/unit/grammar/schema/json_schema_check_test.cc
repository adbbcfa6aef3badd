#include "grammar/schema/json_schema_check.h"

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

Status CheckText(const std::string& schema) {
  return CheckJsonSchema(Json::parse(schema, nullptr, /*allow_exceptions=*/false));
}

Status CheckTagText(const std::string& tag) {
  return CheckSchemasOfTag(Json::parse(tag, nullptr, /*allow_exceptions=*/false));
}

using Catch::Matchers::Contains;

TEST_CASE("keywords that would be left out are refused, wherever a schema stands") {
  const auto message = [](const char* schema) { return CheckText(schema).message(); };
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

TEST_CASE("references by other keywords, and conditions of older drafts, are refused") {
  const auto message = [](const char* schema) { return CheckText(schema).message(); };
  CHECK_THAT(message(R"({"properties": {"a": {"$dynamicRef": "#a"}}})"),
             Contains("\"$dynamicRef\" at #/properties/a,"));
  CHECK_THAT(message(R"({"items": {"$recursiveRef": "#"}})"), Contains("\"$recursiveRef\""));
  CHECK_THAT(message(R"({"type": "object", "dependencies": {"a": ["b"]}})"),
             Contains("\"dependencies\""));
}

TEST_CASE("keywords of a form that means nothing are refused by name") {
  const auto message = [](const char* schema) { return CheckText(schema).message(); };
  for (const char* keyword : {"anyOf", "oneOf", "allOf", "type"}) {
    CHECK_THAT(message(Json({{keyword, Json::array()}}).dump().c_str()),
               Contains(std::string(keyword) + "\" at #, which must not be an empty list"));
  }
  CHECK_THAT(message(R"({"type": "string", "format": 5})"), Contains("\"format\" at #,"));
  CHECK_THAT(message(R"({"type": "string", "pattern": 5})"), Contains("\"pattern\" at #,"));
  CHECK_THAT(message(R"({"type": "object", "properties": {"a": {}}, "required": ["a", 5]})"),
             Contains("\"required\" at #, which must be a list of strings"));
}

TEST_CASE("a reference that leads to itself is refused") {
  const auto message = [](const char* schema) { return CheckText(schema).message(); };
  CHECK_THAT(message(R"({"$ref": "#"})"), Contains("leads to itself"));
  CHECK_THAT(message(R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
                         "type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}})"),
             Contains("leads to itself"));
  CHECK(CheckText(R"({"type": "object", "properties": {"x": {"$ref": "#"}}})").ok());
}

TEST_CASE("keywords that would be left out beside others are refused") {
  const auto message = [](const char* schema) { return CheckText(schema).message(); };
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
  CHECK_THAT(message(R"({"enum": ["a"], "const": "b"})"), Contains("\"enum\" excludes"));
  CHECK_THAT(message(R"({"anyOf": [{}], "oneOf": [{}]})"), Contains("\"oneOf\" beside \"anyOf\""));
  CHECK_THAT(message(R"({"patternProperties": {"a": {}}, "type": "object",
                         "propertyNames": {"pattern": "b"}})"),
             Contains("\"propertyNames\" beside \"patternProperties\""));
  CHECK_THAT(message(R"({"type": "object", "minProperties": 2, "additionalProperties": {}})"),
             Contains("\"minProperties\" above 1 beside \"additionalProperties\""));
  CHECK_THAT(message(R"({"properties": {"a": {}}, "propertyNames": {"pattern": "b"}})"),
             Contains("\"propertyNames\" beside \"properties\""));
  CHECK_THAT(message(R"({"patternProperties": {"a": {}}, "type": "object",
                         "additionalProperties": {"type": "string"}})"),
             Contains("\"additionalProperties\" beside \"patternProperties\""));
  CHECK_THAT(message(R"({"type": ["integer", "null"], "const": 1.5})"), Contains("excludes"));
  for (const char* schema :
       {R"({"type": "string", "const": "a", "enum": ["a"], "title": "t", "default": "a"})",
        R"({"type": ["integer", "null"], "enum": [1, 2.0, null]})",
        R"({"type": "number", "enum": [1, 1.5]})", R"({"type": "object", "const": {"a": [true]}})",
        R"({"type": "object", "anyOf": [{"type": "object"}], "description": "d"})",
        R"({"$ref": "#/$defs/a", "title": "t", "$defs": {"a": {"type": "integer"}}})",
        R"({"patternProperties": {"a": {}}, "type": "object", "additionalProperties": false})",
        R"({"type": "object", "minProperties": 1, "additionalProperties": {}})",
        R"({"properties": {"a": {}, "b": {}}, "minProperties": 2, "additionalProperties": false})",
        R"({"allOf": [{"type": "object"}], "additionalProperties": true})",
        R"({"propertyNames": {"pattern": "a"}, "type": "object"})",
        R"({"properties": {"a": {}}, "required": ["a"]})"}) {
    CAPTURE(schema);
    CHECK(message(schema) == "");
  }
}

TEST_CASE("a pattern of names that may be those of properties is refused") {
  const auto message = [](const std::string& pattern) {
    return CheckText(R"({"type": "object", "properties": {"ab": {}, "x": {}},
                                   "patternProperties": {")" +
                     pattern + R"(": {}}})")
        .message();
  };
  for (const char* pattern :
       {"^a", "^ab?c", "b$", "^[a-c]+$", "^(ab)", "^q|ab", "^x*y", "^-{0,2}a", "^ac?"}) {
    CAPTURE(pattern);
    CHECK_THAT(message(pattern), Contains("may match it too"));
  }
  for (const char* pattern : {"^x-", "^y", "^abc"}) {
    CAPTURE(pattern);
    CHECK(message(pattern) == "");
  }
}

TEST_CASE("what stands beside a reference is refused, but in drafts where it has no effect") {
  const auto message = [](const std::string& beside, const std::string& dialect = "x") {
    return CheckText(R"({"$schema": ")" + dialect + R"(", "items": {"$ref": "#/$defs/a~1b", )" +
                     beside + R"(}, "$defs": {"a/b": {"type": "integer"}}})")
        .message();
  };
  CHECK_THAT(message(R"("minimum": 3)"), Contains("\"minimum\" beside \"$ref\" at #/items,"));
  CHECK_THAT(message(R"("properties": {})"), Contains("\"properties\" beside \"$ref\""));
  CHECK_THAT(message(R"("anyOf": [{}])"), Contains("\"anyOf\" beside \"$ref\""));
  CHECK_THAT(message(R"("enum": [1])"), Contains("\"enum\" beside \"$ref\""));
  CHECK_THAT(message(R"("type": "string")"), Contains("\"type\" beside \"$ref\""));
  CHECK(message(R"("type": "integer")") == "");
  CHECK(message(R"("description": "d", "default": 1)") == "");
  CHECK(message(R"("minimum": 3)", "http://json-schema.org/draft-07/schema#") == "");
}

TEST_CASE("each schema of a structural tag is checked") {
  const auto message = [](const char* tag) { return CheckTagText(tag).message(); };
  CHECK_THAT(message(R"({"type": "structural_tag", "format": {"type": "triggered_tags", "tags": [
                 {"type": "tag", "begin": "a", "end": "b", "content":
                  {"type": "json_schema", "json_schema": {"items": {"not": {}}}}}]}})"),
             Contains("\"not\" at #/items,"));
  CHECK_THAT(message(R"({"structures": [{"begin": "a", "schema": {"not": {}}, "end": "b"}]})"),
             Contains("\"not\" at #,"));
  CHECK_THAT(message(R"({"structures": [{"begin": "a", "schema": "{\"not\": {}}", "end": "b"}]})"),
             Contains("\"not\" at #,"));
  CHECK(message(R"({"format": {"content": {"json_schema": true}, "not": {"if": 1}}})") == "");
  CHECK(message("3") == "");
}

TEST_CASE("patterns that make no JSON are refused") {
  const auto message = [](const char* schema) { return CheckText(schema).message(); };
  CHECK_THAT(message(R"({"type": "string", "pattern": "^\"$"})"),
             Contains(R"(the pattern "^\"$" at #,)"));
  CHECK_THAT(message(R"({"type": "object", "patternProperties": {"\\n": {}}})"),
             Contains("at #/patternProperties,"));
  CHECK(message(R"({"type": "string", "pattern": "^[^\"]*$"})") == "");
}

TEST_CASE("a schema of any depth is checked or refused") {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += R"({"items":)";
  deep += "{}" + std::string(100'000, '}');
  CHECK_THAT(CheckText(deep).message(), Contains("nested deeper"));
}

TEST_CASE("a schema of many references is checked in bounded time") {
  std::string many = R"({"$defs": {"a": {"type": "null"})";
  for (int i = 0; i < 201; ++i) {
    many += ", \"b" + std::to_string(i) + R"(": {"$ref": "#/$defs/a", "type": "null"})";
  }
  CHECK_THAT(CheckText(many + "}}").message(), Contains("\"type\" beside \"$ref\""));
}

TEST_CASE("names of properties and values are not keywords") {
  CHECK(CheckText(R"({"properties": {"not": {}, "if": {"const": {"not": 1}}}})").ok());
  CHECK(CheckText(R"({"enum": [{"contains": 1}], "uniqueItems": false})").ok());
  CHECK(CheckText("true").ok());
}

}  // namespace
}  // namespace tandem
