#include "frontend/parsers/tool_set.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "frontend/parsers/python_literal.h"

namespace tandem {
namespace {

const ToolSet& Tools() {
  static const ToolSet tools(ToolSet::Json::parse(R"([{"type": "function", "function": {"name": "f",
    "parameters": {"properties": {
      "text": {"type": "string"}, "count": {"type": "integer"}, "on": {"type": "boolean"},
      "maybe": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "list": {"type": "array"},
      "kind": {"enum": ["a", 3]}, "odd": {"anyOf": 7}}}}}, {"odd": 1}, 5])"));
  return tools;
}

TEST_CASE("ToolSet: a parameter's schema decides what its text is") {
  const auto json = [](const char* parameter, const char* text) {
    return Tools().ToJson("f", parameter, text);
  };
  CHECK(json("text", "12") == "\"12\"");
  CHECK(json("count", " 12 ") == "12");
  CHECK(json("count", "1.0") == "1");
  CHECK(json("count", "many") == "\"many\"");
  CHECK(json("on", "True") == "true");
  CHECK(json("maybe", "null") == "null");
  CHECK(json("maybe", "1.5") == "1.5");
  CHECK(json("maybe", "1e400") == "\"1e400\"");
  CHECK(json("list", "[1, 2]") == "[1,2]");
  CHECK(json("list", "[1, 2") == "\"[1, 2\"");
  CHECK(json("kind", "3") == "3");
  CHECK(json("kind", "a") == "\"a\"");
  CHECK(json("unknown", "3") == "\"3\"");
  CHECK(json("odd", "3") == "\"3\"");
  CHECK(Tools().IsText("f", "text"));
  CHECK(Tools().IsText("g", "count"));
  CHECK_FALSE(Tools().IsText("f", "count"));
}

TEST_CASE("Python literals: what is no literal is refused") {
  CHECK(ParsePythonCallList("[f(a='x', b=[1, (2, {'k': None})])]")->at(0).arguments ==
        R"({"a": "x", "b": [1, [2, {"k": null}]]})");
  CHECK(ParsePythonCallList("[f(a=.5, b=-1.e2, c=1_000, d=2.)]")->at(0).arguments ==
        R"({"a": 0.5, "b": -100, "c": 1000, "d": 2.0})");
  CHECK(ParsePythonCallList("[f(a='\\x41\\u00e9\\n\\'')]")->at(0).arguments ==
        "{\"a\": \"A\xc3\xa9\\n'\"}");
  for (const char* text : {"[f(a=1+1)]", "[f('x')]", "[f(a=g())]", "[f(a='x)]", "[f(a=07)]", "[f(",
                           "[f(a=f'{x}')]", "[1]", "[]", "", "[f(a='\\ud800')]", "[f(a=-)]"}) {
    INFO(text);
    CHECK_FALSE(ParsePythonCallList(text).has_value());
  }
  const std::string deep = "[f(a=" + std::string(100'000, '[') + ")]";
  CHECK_FALSE(ParsePythonCallList(deep).has_value());
}

}  // namespace
}  // namespace tandem
