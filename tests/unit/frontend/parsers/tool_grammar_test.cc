#include "frontend/parsers/tool_grammar.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using Choice = MessageFormat::Choice;

Json Tool(const char* name, const char* parameters) {
  return {{"type", "function"},
          {"function", {{"name", name}, {"parameters", Json::parse(parameters)}}}};
}

ToolGrammarInput Input(const char* parser, const Json& tools, Choice choice) {
  return {.tools = &tools, .choice = choice, .named_tool = "f", .parser = FindToolParser(parser)};
}

TEST_CASE("tool grammar: definitions of all tools stand at the top of one schema") {
  const Json tools = {
      Tool("f",
           R"({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "null"}}})"),
      Tool("g", R"({"properties": {}, "$defs": {"A": {"type": "null"}, "B": true}})")};
  const auto grammar = MakeToolGrammar(Input("pythonic", tools, Choice::kRequired));
  REQUIRE(grammar.ok());
  const Json& schema = grammar->structured_outputs["json"];
  CHECK(schema["$defs"] == Json::parse(R"({"A": {"type": "null"}, "B": true})"));
  for (const Json& call : schema["items"]["anyOf"]) {
    CHECK_FALSE(call["properties"]["parameters"].contains("$defs"));
  }
}

// What a reference leads to in the end.
Json Resolved(const Json& root, Json schema) {
  while (schema.is_object() && schema.contains("$ref")) {
    std::string ref = schema["$ref"];
    schema = root.at(Json::json_pointer(ref.erase(0, 1)));
  }
  return schema;
}

TEST_CASE("tool grammar: references to any place of a tool's parameters keep their target") {
  const Json tools = {Tool("f", R"({"type": "object", "properties": {"a": {"type": "null"},
                    "b": {"$ref": "#/properties/a"}, "again": {"$ref": "#"}}})"),
                      Tool("g", R"({"properties": {"a": {"$ref": "#/definitions/A"}},
                    "definitions": {"A": {"type": "boolean"}}})")};
  const auto grammar = MakeToolGrammar(Input("pythonic", tools, Choice::kRequired));
  REQUIRE(grammar.ok());
  const Json& root = grammar->structured_outputs["json"];
  const auto properties = [&](size_t call) {
    return Resolved(root, root["items"]["anyOf"][call]["properties"]["parameters"])["properties"];
  };
  CHECK(Resolved(root, properties(0)["b"]) == Json{{"type", "null"}});
  CHECK(Resolved(root, properties(0)["again"])["properties"] == properties(0));
  CHECK(Resolved(root, properties(1)["a"]) == Json{{"type", "boolean"}});
}

TEST_CASE("tool grammar: parameters that cannot be enforced are refused where calls follow them") {
  const Json tools = {Tool("e", R"({"type": "object"})"), Tool("f", R"({"not": {}})")};
  const auto status = [&](const char* parser, Choice choice, StrictLevel level) {
    ToolGrammarInput in = Input(parser, tools, choice);
    in.strict_level = level;
    return MakeToolGrammar(in).status();
  };
  const std::string message =
      "Invalid schema for function 'f': the JSON schema has the keyword \"not\" at #, which cannot "
      "be enforced";
  for (const Choice choice : {Choice::kAuto, Choice::kRequired, Choice::kNamed}) {
    const Status strict = status("hermes", choice, StrictLevel::kParameter);
    CHECK(strict.message() == message);
    CHECK(strict.param() == "tools[1].function.parameters");
    CHECK(status("hermes", choice, StrictLevel::kFunction).ok());
  }
  CHECK(status("pythonic", Choice::kRequired, StrictLevel::kAuto).message() == message);
  CHECK(status("pythonic", Choice::kAuto, StrictLevel::kParameter).ok());
}

TEST_CASE("tool grammar: two definitions of one name stand apart") {
  const Json tools = {
      Tool("f",
           R"({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "null"}}})"),
      Tool("g",
           R"({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}})")};
  const auto grammar = MakeToolGrammar(Input("pythonic", tools, Choice::kRequired));
  REQUIRE(grammar.ok());
  const Json& root = grammar->structured_outputs["json"];
  for (size_t i = 0; i < 2; ++i) {
    const Json call = root["items"]["anyOf"][i]["properties"]["parameters"];
    CHECK(Resolved(root, Resolved(root, call)["properties"]["a"]) ==
          Json{{"type", i == 0 ? "null" : "string"}});
  }
}

TEST_CASE("tool grammar: the server's level is a floor") {
  const Json tools = {Tool("f", R"({"type": "object"})")};
  ToolGrammarInput in = Input("hermes", tools, Choice::kAuto);
  CHECK(MakeToolGrammar(in)->structured_outputs.is_null());
  const auto schema = [&] {
    return MakeToolGrammar(in)
        ->structured_outputs["structural_tag"]["format"]["tags"][0]["content"]["json_schema"];
  };
  in.strict_level = StrictLevel::kFunction;
  CHECK(schema() == true);
  in.strict_level = StrictLevel::kParameter;
  CHECK(schema() == Json{{"type", "object"}});
}

TEST_CASE("tool grammar: a tool without parameters takes any object when it is named") {
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  CHECK(MakeToolGrammar(Input("pythonic", tools, Choice::kNamed))->structured_outputs["json"] ==
        Json{{"type", "object"}});
  CHECK(MakeToolGrammar(Input("hermes", tools, Choice::kNamed)).ok());
}

TEST_CASE("tool grammar: what has no effect is said") {
  const Json tools = {Tool("f", R"({"type": "object"})")};
  for (const Choice choice : {Choice::kAuto, Choice::kRequired, Choice::kNamed}) {
    ToolGrammarInput in = Input("hermes", tools, choice);
    CHECK(MakeToolGrammar(in)->warning.empty());
    in.own = {{"json_object", true}};
    CHECK_FALSE(MakeToolGrammar(in)->warning.empty());
    in.strict_level = StrictLevel::kFunction;  // a call or the format
    CHECK(MakeToolGrammar(in)->warning.empty() == (choice == Choice::kAuto));
  }
}

TEST_CASE("tool grammar: every constraint of a request can stand beside calls") {
  const Json tools = {Tool("f", R"({"type": "object"})")};
  const std::pair<const char*, const char*> cases[] = {
      {R"({"regex": "a+"})", R"({"type": "regex", "pattern": "a+"})"},
      {R"({"grammar": "root ::= \"a\""})", R"({"type": "grammar", "grammar": "root ::= \"a\""})"},
      {R"({"choice": ["a", "b"]})",
       R"({"type": "or", "elements": [{"type": "const_string", "value": "a"},
                                      {"type": "const_string", "value": "b"}]})"},
      {R"({"structural_tag": {"type": "structural_tag", "format": {"type": "any_text"}}})",
       R"({"type": "any_text"})"},
      {R"({"structural_tag": "{\"type\": \"structural_tag\", \"format\": {\"type\": \"any_text\"}}"})",
       R"({"type": "any_text"})"},
  };
  for (const auto& [own, format] : cases) {
    INFO(own);
    ToolGrammarInput in = Input("hermes", tools, Choice::kAuto);
    in.strict_level = StrictLevel::kFunction;
    in.own = Json::parse(own);
    const Json tag = MakeToolGrammar(in)->structured_outputs["structural_tag"]["format"];
    CHECK(tag["type"] == "or");
    CHECK(tag["elements"][1] == Json::parse(format));
  }
}

TEST_CASE("tool grammar: gemma4's calls have the tools' names and any well-formed arguments") {
  const Json tools = {Tool("f", R"({"type": "object"})"), Tool("g", R"({"type": "object"})")};
  const auto tags = [&](Choice choice) {
    const auto grammar = MakeToolGrammar(Input("gemma4", tools, choice));
    return grammar->structured_outputs["structural_tag"]["format"]["tags"];
  };
  CHECK(tags(Choice::kRequired).size() == 2);
  const Json named = tags(Choice::kNamed);
  REQUIRE(named.size() == 1);
  CHECK(named[0]["begin"] == "<|tool_call>call:f{");
  CHECK(named[0]["content"]["type"] == "grammar");
  CHECK(named[0]["end"] == "}<tool_call|>");
  CHECK(MakeToolGrammar(Input("gemma4", tools, Choice::kAuto))->structured_outputs.is_null());
}

TEST_CASE("tool grammar: a name is escaped where it stands in JSON") {
  const Json tools = {Tool("a\"b", R"({"type": "object"})")};
  const auto grammar = MakeToolGrammar(Input("hermes", tools, Choice::kRequired));
  CHECK(grammar->structured_outputs["structural_tag"]["format"]["tags"][0]["begin"] ==
        "<tool_call>\n{\"name\": \"a\\\"b\", \"arguments\": ");
}

}  // namespace
}  // namespace tandem
