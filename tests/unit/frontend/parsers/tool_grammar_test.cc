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

TEST_CASE("tool grammar: two definitions of one name are refused") {
  const Json tools = {Tool("f", R"({"$defs": {"A": {"type": "null"}}})"),
                      Tool("g", R"({"$defs": {"A": {"type": "string"}}})")};
  const auto grammar = MakeToolGrammar(Input("pythonic", tools, Choice::kRequired));
  REQUIRE_FALSE(grammar.ok());
  CHECK(grammar.status().message() ==
        "Tool definition 'A' has multiple schemas, which is not supported.");
  // A tag has a schema for each tool.
  CHECK(MakeToolGrammar(Input("hermes", tools, Choice::kRequired)).ok());
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
