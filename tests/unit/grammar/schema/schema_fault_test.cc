#include "grammar/schema/schema_fault.h"

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

TEST_CASE("the schemas of a tag are those of both of its forms, in their order") {
  const Json old_form = Json::parse(
      R"({"structures": [{"begin": "a", "schema": {"title": "1"}, "end": "b"},
                         {"begin": "c", "schema": "{}", "end": "d"}], "triggers": ["a"]})");
  const auto old_schemas = SchemasOfTag(old_form);
  REQUIRE(old_schemas.size() == 2);
  CHECK(*old_schemas[0] == Json{{"title", "1"}});
  CHECK(*old_schemas[1] == "{}");
  const Json tag = Json::parse(
      R"({"format": {"type": "or", "elements": [
           {"type": "json_schema", "json_schema": {"properties": {"json_schema": {"title": "in"}}}},
           {"type": "tag", "content": {"type": "json_schema", "json_schema": true}}]}})");
  const auto schemas = SchemasOfTag(tag);
  REQUIRE(schemas.size() == 2);
  CHECK(schemas[0]->contains("properties"));
  CHECK(*schemas[1] == true);
  CHECK(SchemasOfTag(Json(3)).empty());
}

TEST_CASE("a fault is read from the message that has it") {
  const std::string message = FaultMessage({1, "it is wrong: x of the structural tag: y"});
  CHECK(message == "schema 2 of the structural tag: it is wrong: x of the structural tag: y");
  const auto fault = ReadFault(message);
  REQUIRE(fault);
  CHECK(fault->index == 1);
  CHECK(fault->reason == "it is wrong: x of the structural tag: y");
  for (const char* other :
       {"", "schema", "schema 1", "schema 0 of the structural tag: x",
        "schema a of the structural tag: x", "schema -1 of the structural tag: x",
        "schema 99999999999999999999 of the structural tag: x",
        "the structural tag is not valid: schema 1 of the structural tag: x"}) {
    INFO(other);
    CHECK(!ReadFault(other));
  }
}

}  // namespace
}  // namespace tandem
