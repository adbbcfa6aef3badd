// Random schemas, and outputs whose every token was drawn from the masks: what ends is JSON and
// valid by an obvious validator. TANDEM_SEED repeats a run, TANDEM_CASES sets how many schemas.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/environment.h"
#include "tests/support/masked_writer.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// ---- schemas ----

Json DrawSchema(Dice& dice, int depth);

Json DrawObject(Dice& dice, int depth) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  const char* names[] = {"a",       "bb",     "näme",   "with space",
                         "q\"uote", "sl/ash", "ti~lde", "per%25cent"};
  const int32_t count = dice.Roll(0, 8);
  for (int32_t i = 0; i < count; ++i) {
    schema["properties"][names[i]] = DrawSchema(dice, depth - 1);
    if (!dice.Chance(3)) schema["required"].push_back(names[i]);
  }
  return schema;
}

Json DrawArray(Dice& dice, int depth) {
  Json schema = {{"type", "array"}, {"items", DrawSchema(dice, depth - 1)}};
  const int32_t least = dice.Roll(0, 2);
  if (!dice.Chance(2)) schema["minItems"] = least;
  schema["maxItems"] = least + dice.Roll(0, 3);
  return schema;
}

Json DrawScalar(Dice& dice) {
  const int32_t low = dice.Roll(-50, 50);
  switch (dice.Roll(0, 7)) {
    case 0:
      return {{"type", "integer"}, {"minimum", low}, {"maximum", low + dice.Roll(0, 2000)}};
    case 1:
      return {{"type", "integer"}};
    case 2:
      // Unbounded ones have exponents beyond what the validator's numbers hold.
      return {{"type", "number"}, {"minimum", low}, {"maximum", low + 10}};
    case 3:
      return {{"type", "boolean"}};
    case 4:
      return {{"type", "null"}};
    case 5:
      return {{"enum", {"one", 2, nullptr, "th\nree", {{"k", 1}}}}};
    case 6:
      return {{"type", "string"}, {"minLength", dice.Roll(0, 3)}, {"maxLength", dice.Roll(3, 12)}};
    default:
      return {{"type", "string"}};
  }
}

Json DrawSchema(Dice& dice, int depth) {
  if (depth == 0) return DrawScalar(dice);
  switch (dice.Roll(0, 3)) {
    case 0:
      return DrawObject(dice, depth);
    case 1:
      return DrawArray(dice, depth);
    case 2:
      return {{"anyOf", {DrawSchema(dice, depth - 1), DrawSchema(dice, depth - 1)}}};
    default:
      return DrawScalar(dice);
  }
}

// ---- references ----

// Pointers to all schemas within one.
void CollectPlaces(const Json& schema, const std::string& place, std::vector<std::string>* places) {
  if (!place.empty()) places->push_back(place);
  const auto below = [&](const char* keyword, const std::string& name) {
    const Json::json_pointer step = Json::json_pointer("/" + std::string(keyword)) / name;
    CollectPlaces(schema.at(step), place + step.to_string(), places);
  };
  if (schema.contains("properties")) {
    for (const auto& [name, value] : schema["properties"].items()) below("properties", name);
  }
  if (schema.contains("items")) {
    CollectPlaces(schema["items"], place + "/items", places);
  }
  for (size_t i = 0; schema.contains("anyOf") && i < schema["anyOf"].size(); ++i) {
    CollectPlaces(schema["anyOf"][i], place + "/anyOf/" + std::to_string(i), places);
  }
}

// As a URI's fragment, where any byte may be escaped and some must be.
std::string AsFragment(const std::string& pointer, Dice& dice) {
  std::string ref = "#";
  const bool escapes_letters = dice.Chance(2);
  for (const char c : pointer) {
    const bool is_ascii = static_cast<unsigned char>(c) < 0x80;
    const bool escapes = is_ascii ? c == '%' || c == '"' || dice.Chance(8) : escapes_letters;
    if (!escapes) {
      ref += c;
      continue;
    }
    char escaped[4];
    std::snprintf(escaped, sizeof escaped, "%%%02X", static_cast<unsigned char>(c));
    ref += escaped;
  }
  return ref;
}

// ---- what is valid ----

int64_t NumCharacters(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

bool IsValid(const Json& schema, const Json& value);

bool IsValidObject(const Json& schema, const Json& value) {
  if (!value.is_object()) return false;
  for (const Json& name : schema["required"]) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  for (const auto& [name, item] : value.items()) {
    if (!schema["properties"].contains(name)) return false;
    if (!IsValid(schema["properties"][name], item)) return false;
  }
  return true;
}

bool IsValidArray(const Json& schema, const Json& value) {
  if (!value.is_array() || value.size() < schema.value("minItems", size_t{0})) return false;
  if (value.size() > schema.value("maxItems", size_t{1000})) return false;
  return std::ranges::all_of(value,
                             [&](const Json& item) { return IsValid(schema["items"], item); });
}

bool IsValid(const Json& schema, const Json& value) {
  if (schema.contains("enum")) return std::ranges::count(schema["enum"], value) > 0;
  if (schema.contains("anyOf")) {
    return std::ranges::any_of(schema["anyOf"],
                               [&](const Json& one) { return IsValid(one, value); });
  }
  const std::string type = schema["type"];
  if (type == "object") return IsValidObject(schema, value);
  if (type == "array") return IsValidArray(schema, value);
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") {
    if (!value.is_number()) return false;
    const auto number = value.get<double>();
    return number >= schema["minimum"].get<double>() && number <= schema["maximum"].get<double>();
  }
  if (type == "integer") {
    if (!value.is_number_integer() && !value.is_number_float()) return false;
    const auto number = value.get<double>();
    return number >= schema.value("minimum", -1e300) && number <= schema.value("maximum", 1e300);
  }
  if (!value.is_string()) return false;
  const int64_t length = NumCharacters(value.get<std::string>());
  return length >= schema.value("minLength", int64_t{0}) &&
         length <= schema.value("maxLength", int64_t{1} << 40);
}

// ---- outputs ----

TEST_CASE("what a reference leads to is held to its target, however the reference is spelled") {
  const uint64_t seed = FromEnvironment("TANDEM_SEED", 43);
  const auto num_cases = static_cast<int>(FromEnvironment("TANDEM_CASES", 60));
  MaskedWriter writer(seed);
  Dice& dice = writer.dice();
  int num_whole = 0;
  for (int i = 0; i < num_cases; ++i) {
    // Optional, so that outputs consist mostly of the reference's.
    Json schema = DrawObject(dice, 2);
    schema["required"] = Json::array({"ref"});
    std::vector<std::string> places;
    CollectPlaces(schema, "", &places);
    if (places.empty()) continue;
    const auto last = static_cast<int32_t>(places.size()) - 1;
    const std::string pointer = places[static_cast<size_t>(dice.Roll(0, last))];
    const Json target = schema.at(Json::json_pointer(pointer));
    Json asked = schema;
    asked["properties"]["ref"] = {{"$ref", AsFragment(pointer, dice)}};
    CAPTURE(seed, i, asked.dump());
    const auto grammar =
        writer.Compile({GrammarKind::kJsonSchema, JsonBlanks::kPython, asked.dump()});
    INFO(grammar.status().ToString());
    REQUIRE(grammar.ok());
    const std::optional<std::string> text = writer.Write(*grammar);
    if (!text) continue;
    ++num_whole;
    INFO(*text);
    const Json value = Json::parse(*text, nullptr, false);
    schema["properties"]["ref"] = target;
    REQUIRE(IsValid(schema, value));
  }
  CHECK(num_whole * 3 > num_cases);
}

TEST_CASE("outputs that masks allow are JSON and valid by their schema") {
  const uint64_t seed = FromEnvironment("TANDEM_SEED", 41);
  const auto num_cases = static_cast<int>(FromEnvironment("TANDEM_CASES", 60));
  MaskedWriter writer(seed);
  int num_whole = 0, num_written = 0;
  for (int i = 0; i < num_cases; ++i) {
    const Json schema = DrawObject(writer.dice(), 3);
    CAPTURE(seed, i, schema.dump());
    const auto blanks = static_cast<JsonBlanks>(writer.dice().Roll(0, 2));
    const auto grammar = writer.Compile({GrammarKind::kJsonSchema, blanks, schema.dump()});
    INFO(grammar.status().ToString());
    REQUIRE(grammar.ok());
    for (int j = 0; j < 3; ++j) {
      const std::optional<std::string> text = writer.Write(*grammar);
      ++num_written;
      if (!text) continue;
      ++num_whole;
      INFO(*text);
      const Json value = Json::parse(*text, nullptr, false);
      REQUIRE_FALSE(value.is_discarded());
      REQUIRE(IsValid(schema, value));
    }
  }
  CHECK(num_whole * 2 > num_written);
}

}  // namespace
}  // namespace tandem
