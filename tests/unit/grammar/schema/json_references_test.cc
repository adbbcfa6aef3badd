#include "grammar/schema/json_references.h"

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

TEST_CASE("a reference is a pointer with escapes") {
  const Json root = Json::parse(
      R"({"$defs": {"a/b": 1, "c~d": 2, "e f": 3, "": 4, "p%q": 5}, "anyOf": [6, {"x": 7}]})");
  const auto target = [&](const char* ref) {
    const Json* found = FindTarget(root, ref);
    return found == nullptr ? Json() : *found;
  };
  CHECK(target("#/$defs/a~1b") == 1);
  CHECK(target("#/$defs/c~0d") == 2);
  CHECK(target("#/%24defs/e%20f") == 3);
  CHECK(target("#/$defs/") == 4);
  CHECK(target("#/$defs/p%25q") == 5);
  CHECK(target("#/anyOf/1/x") == 7);
  CHECK(target("#") == root);
  for (const char* ref :
       {"#/$defs/a/b", "#/anyOf/2", "#/anyOf/-", "#anchor", "other.json", "", "#/$defs/c~2d"}) {
    CAPTURE(ref);
    CHECK(FindTarget(root, ref) == nullptr);
  }
}

TEST_CASE("references move with their schema, but not what is data") {
  Json schema = Json::parse(
      R"({"items": {"$ref": "#"}, "a": [{"$ref": "#/items"}], "b": {"$ref": "x.json"},
          "enum": [{"$ref": "#"}]})");
  CHECK_FALSE(RefersOnlyTo("#/items", "x.json", schema));
  MoveReferences("#/$defs/t", &schema);
  CHECK(schema == Json::parse(
                      R"({"items": {"$ref": "#/$defs/t"}, "a": [{"$ref": "#/$defs/t/items"}],
                          "b": {"$ref": "x.json"}, "enum": [{"$ref": "#"}]})"));
  CHECK(RefersOnlyTo("#/$defs/", "x.json", schema));
}

TEST_CASE("targets that need more than names get a name") {
  Json schema = Json::parse(
      R"({"$defs": {"a/b": {"$ref": "#/anyOf/0"}, "target_0": true},
          "anyOf": [{"type": "null"}, {"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/target_0"}]})");
  REQUIRE(GiveTargetsNames(&schema));
  const auto resolve = [&](Json part) {
    while (part.is_object() && part.contains("$ref")) {
      part = *FindTarget(schema, part["$ref"].get<std::string>());
    }
    return part;
  };
  CHECK(resolve(schema["anyOf"][1]) == Json{{"type", "null"}});
  CHECK(resolve(schema["anyOf"][2]) == true);
  CHECK(schema.dump().find("~1") == std::string::npos);
  CHECK_FALSE(GiveTargetsNames(&schema));
  Json lost = Json::parse(R"({"$ref": "#/$defs/a~1b"})");
  CHECK_FALSE(GiveTargetsNames(&lost));
}

}  // namespace
}  // namespace tandem
