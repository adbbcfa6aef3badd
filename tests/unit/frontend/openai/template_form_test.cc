#include "frontend/openai/template_form.h"

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

Json Said(const char* role, const Json& content) { return {{"role", role}, {"content", content}}; }

Json AsSystem(Json messages) {
  DevelopersAsSystem(&messages);
  return messages;
}

TEST_CASE("a tool has the API's keys in their order, with null for what is missing") {
  const Json full = {{"function",
                      {{"strict", true},
                       {"parameters", {{"type", "object"}}},
                       {"title", "Add"},
                       {"description", "adds"},
                       {"name", "add"}}},
                     {"defer_loading", false},
                     {"cache_control", {{"type", "ephemeral"}}},
                     {"type", "function"}};
  const Json bare = {{"type", "function"}, {"function", {{"name", "now"}, {"strict", nullptr}}}};
  CHECK(ToolsForTemplate({full, bare}, false).dump() ==
        R"([{"type":"function","function":{"name":"add","description":"adds",)"
        R"("parameters":{"type":"object"},"strict":true},"defer_loading":false},)"
        R"({"type":"function","function":{"name":"now","description":null,"parameters":null}}])");
  CHECK(ToolsForTemplate(Json::array({bare}), true)[0]["function"]["description"] == "");
}

TEST_CASE("a developer is the system to templates that do not know the role") {
  CHECK(AsSystem({Said("developer", "a"), Said("user", "b")}) ==
        Json({Said("system", "a"), Said("user", "b")}));
  Json with_tools = Said("developer", "a");
  with_tools["tools"] = Json::array();
  CHECK(AsSystem(Json::array({with_tools})) == Json::array({Said("system", "a")}));
}

TEST_CASE("the system's messages and the developer's become one, the first") {
  CHECK(AsSystem({Said("system", "a"), Said("developer", "b"), Said("user", "c"),
                  Said("developer", ""), Said("developer", "d")}) ==
        Json({Said("system", "a\n\nb\n\nd"), Said("user", "c")}));
  CHECK(AsSystem({Said("user", "a"), Said("developer", "b")}) ==
        Json({Said("system", "b"), Said("user", "a")}));
  const auto parts = [](const char* text) {
    return Json::array({{{"type", "text"}, {"text", text}}});
  };
  Json two = parts("b");
  two.push_back({{"type", "text"}, {"text", "c"}});
  CHECK(AsSystem({Said("system", parts("a")), Said("developer", two)}) ==
        Json::array({Said("system", parts("a\n\nb\nc"))}));
}

TEST_CASE("without a developer messages of the system stay where they are") {
  const Json messages = {Said("user", "a"), Said("system", "b"), Said("system", "c")};
  CHECK(AsSystem(messages) == messages);
}

TEST_CASE("gpt-oss' template gets all instructions in its first message") {
  Json messages = {Said("system", "a"), Said("user", "b"), Said("system", "c")};
  SetHarmonyForm(&messages);
  CHECK(messages == Json({Said("system", "a\n\nc"), Said("user", "b")}));
}

TEST_CASE("content beside reasoning and a call follows the reasoning") {
  Json call = Said("assistant", "b");
  call["reasoning"] = "a";
  Json messages = {call, call, call};
  messages[0]["tool_calls"] = Json::array({Json::object()});
  messages[1]["tool_calls"] = messages[0]["tool_calls"];
  messages[1]["content"] = "";
  SetHarmonyForm(&messages);
  CHECK(messages[0]["reasoning"] == "a\nb");
  CHECK(messages[0]["content"] == "");
  CHECK(messages[1]["reasoning"] == "a");
  CHECK(messages[2] == call);
}

}  // namespace
}  // namespace tandem
