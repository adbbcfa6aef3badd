#include "frontend/openai/chat_request.h"

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

Json ForTemplate(const Json& message, bool as_parts) {
  return (*MessagesForTemplate(JsonDocument(Json::array({message})), as_parts))[0]["content"];
}

Json TextPart(const char* text) { return {{"type", "text"}, {"text", text}}; }

TEST_CASE("a message's content is one text or a list of parts, as its template wants it") {
  const Json text = {{"role", "user"}, {"content", "a"}};
  CHECK(ForTemplate(text, false) == "a");
  CHECK(ForTemplate(text, true) == Json::array({TextPart("a")}));
  const Json parts = {{"role", "user"},
                      {"content", {TextPart("a"), "b", TextPart(""), TextPart("c")}}};
  CHECK(ForTemplate(parts, false) == "a\nb\n\nc");
  CHECK(ForTemplate(parts, true) ==
        Json::array({TextPart("a"), TextPart("b"), TextPart(""), TextPart("c")}));
}

TEST_CASE("what a response's message did not have is no key of a message for templates") {
  const Json sent_back = {{"role", "assistant"}, {"content", nullptr},   {"name", nullptr},
                          {"refusal", nullptr},  {"reasoning", nullptr}, {"tool_calls", nullptr},
                          {"prefix", true}};
  CHECK((*MessagesForTemplate(JsonDocument(Json::array({sent_back})), false))[0] ==
        Json({{"role", "assistant"}, {"content", ""}, {"prefix", true}}));
}

TEST_CASE("arguments of earlier calls are objects, whatever a model has written") {
  const auto arguments = [](const Json& given) {
    const Json call = {{"id", "c"}, {"function", {{"name", "f"}, {"arguments", given}}}};
    const Json message = {{"role", "assistant"}, {"tool_calls", Json::array({call})}};
    const JsonDocument shown = MessagesForTemplate(JsonDocument(Json::array({message})), false);
    return (*shown)[0]["tool_calls"][0]["function"]["arguments"];
  };
  CHECK(arguments("{\"a\": 1}") == Json({{"a", 1}}));
  CHECK(arguments({{"a", 1}}) == Json({{"a", 1}}));
  // The last of a repeated key, at the place of the first, as Python's json.loads().
  CHECK(arguments(R"({"a": {"x": 1, "x": 2}, "b": 2, "a": {"y": [1], "y": 3}, "a": {"z": 4}})") ==
        Json::parse(R"({"a": {"z": 4}, "b": 2})"));
  CHECK(arguments(R"({"a": [{"x": 1, "x": [2, {}]}], "b": 2})") ==
        Json::parse(R"({"a": [{"x": [2, {}]}], "b": 2})"));
  // And its numbers.
  CHECK(arguments(R"({"a": [1e400, 5], "b": NaN})")["a"][0].get<double>() > 1e308);
  CHECK(arguments(R"({"wei": 100000000000000000000})")["wei"].is_binary());
  for (const Json& given : {Json("{\"a\": "), Json("[1]"), Json("null"), Json(""), Json()}) {
    CHECK(arguments(given) == Json::object());
  }
}

TEST_CASE("a request's own variables come before those of the server") {
  const auto variables = [](const Json& fields) {
    Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}};
    body.update(fields);
    const auto request = ParseChatRequest(std::move(body));
    REQUIRE(request.ok());
    const Json server = {{"enable_thinking", false}, {"reasoning_effort", "high"}};
    return *TemplateVariables(*request, JsonDocument(server));
  };
  CHECK(variables(Json::object()) ==
        Json({{"enable_thinking", false}, {"reasoning_effort", "high"}}));
  CHECK(variables({{"reasoning_effort", "low"}}) ==
        Json({{"enable_thinking", true}, {"reasoning_effort", "low"}}));
  CHECK(variables({{"reasoning_effort", "none"},
                   {"chat_template_kwargs", {{"enable_thinking", true}}}}) ==
        Json({{"enable_thinking", true}, {"reasoning_effort", "none"}}));
  CHECK(variables({{"chat_template_kwargs", {{"enable_thinking", nullptr}, {"a", "auto"}}}}) ==
        Json({{"enable_thinking", false}, {"reasoning_effort", "high"}}));
}

TEST_CASE("variables do not replace what has a field of its own") {
  const auto parse = [](const Json& kwargs) {
    return ParseChatRequest({{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})},
                             {"documents", Json::array({{{"title", "a"}}})},
                             {"chat_template_kwargs", kwargs}});
  };
  const auto request = parse({{"add_generation_prompt", false},
                              {"continue_final_message", true},
                              {"documents", Json::array()},
                              {"b", 1}});
  REQUIRE(request.ok());
  CHECK(*TemplateVariables(*request, JsonDocument()) == Json({{"b", 1}}));
  CHECK(parse({{"messages", Json::array()}}).status().param() == "body.chat_template_kwargs");
}

TEST_CASE("a tool's result is one text, whatever the template wants") {
  for (const char* role : {"tool", "function"}) {
    for (const bool as_parts : {false, true}) {
      CHECK(ForTemplate({{"role", role}, {"content", "21 degrees"}}, as_parts) == "21 degrees");
      CHECK(ForTemplate({{"role", role}, {"content", {TextPart("21"), TextPart("degrees")}}},
                        as_parts) == "21\ndegrees");
      CHECK(ForTemplate({{"role", role}}, as_parts) == "");
    }
  }
}

TEST_CASE("tools that a tool has found stay references to templates that take parts") {
  const Json found = {{"type", "tool_reference"}, {"name", "now"}};
  for (const char* role : {"tool", "user"}) {
    const Json message = {{"role", role}, {"content", Json::array({TextPart("a"), found})}};
    CHECK(ForTemplate(message, true) == Json::array({TextPart("a"), found}));
    CHECK(ForTemplate(message, false) == "a\nnow");
  }
  const auto ask = [](const Json& part) {
    return ParseChatRequest(
               {{"messages", Json::array({{{"role", "tool"}, {"content", Json::array({part})}}})}})
        .status();
  };
  CHECK(ask(found).ok());
  CHECK(ask({{"type", "tool_reference"}}).message().find("must have a name") != std::string::npos);
}

TEST_CASE("whether a tool is loaded later stands in its function, where templates look") {
  const auto tools = [](Json tool) {
    tool["type"] = "function";
    Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})},
                 {"tools", Json::array({std::move(tool)})}};
    return ParseChatRequest(std::move(body));
  };
  const auto outer = tools({{"function", {{"name", "f"}}}, {"defer_loading", true}});
  REQUIRE(outer.ok());
  CHECK((*outer->tools)[0]["function"]["defer_loading"] == true);
  const auto inner =
      tools({{"function", {{"name", "f"}, {"defer_loading", false}}}, {"defer_loading", true}});
  REQUIRE(inner.ok());
  CHECK((*inner->tools)[0]["function"]["defer_loading"] == false);
  CHECK(tools({{"function", {{"name", "f"}}}, {"defer_loading", 3}}).status().param() ==
        "body.tools.0.defer_loading");
}

TEST_CASE("every kind of text part is a text to the template") {
  const Json content = {{{"type", "input_text"}, {"text", "a"}},
                        {{"type", "output_text"}, {"text", "b"}, {"annotations", Json::array()}},
                        {{"type", "refusal"}, {"refusal", "c"}},
                        {{"type", "thinking"}, {"thinking", "d"}},
                        {{"type", "refusal"}, {"refusal", nullptr}},
                        {{"type", "text"}, {"text", nullptr}}};
  const Json message = {{"role", "assistant"}, {"content", content}};
  CHECK(ForTemplate(message, false) == "a\nb\nc\nd");
  CHECK(ForTemplate(message, true) ==
        Json::array({TextPart("a"),
                     {{"type", "text"}, {"text", "b"}, {"annotations", Json::array()}},
                     TextPart("c"),
                     TextPart("d")}));
}

TEST_CASE("keys of a part that no kind of part has reach templates that take parts") {
  const Json content = {{{"type", "text"}, {"text", "a"}, {"cite", {{"at", 3}}}, {"uuid", "x"}},
                        {{"type", "image"}, {"max_pixels", 9}}};
  CHECK(ForTemplate({{"role", "user"}, {"content", content}}, true) ==
        Json::array({{{"type", "text"}, {"text", "a"}, {"cite", {{"at", 3}}}}, content[1]}));
  const Json image = {{"type", "image_url"},
                      {"image_url", {{"url", "http://a/b"}}},
                      {"uuid", "u"},
                      {"max_pixels", 9}};
  const Json message = {{"role", "user"}, {"content", Json::array({image})}};
  const auto request = ParseChatRequest({{"messages", Json::array({message})}});
  REQUIRE(request.ok());
  CHECK((*request->messages)[0]["content"][0] == content[1]);
}

TEST_CASE("a system's billing line is left out, the lines after it stay") {
  const std::string line = "x-anthropic-billing-header: cch=1;";
  const auto system = [](const Json& content) {
    return Json({{"role", "system"}, {"content", content}});
  };
  CHECK(ForTemplate(system(line + "\nBe kind."), false) == "Be kind.");
  CHECK(ForTemplate(system(line), false) == "");
  const Json parts =
      Json::array({TextPart(line.c_str()), TextPart((line + "\na").c_str()), TextPart("b")});
  CHECK(ForTemplate(system(parts), false) == "a\nb");
  CHECK(ForTemplate(system(parts), true) == Json::array({TextPart("a"), TextPart("b")}));
  CHECK(ForTemplate(system("Be kind.\n" + line), false) == "Be kind.\n" + line);
  CHECK(ForTemplate({{"role", "user"}, {"content", line}}, false) == line);
}

TEST_CASE("a refusal repeats a long text in part") {
  const std::string long_text(5000, 'x');
  const Json tool = {{"type", "function"}, {"function", {{"name", "now"}}}};
  const auto refusal = [&](const Json& role, const Json& choice) {
    const Json message = {{"role", role}, {"content", "a"}};
    return ParseChatRequest({{"messages", Json::array({message})},
                             {"tools", Json::array({tool})},
                             {"tool_choice", choice}})
        .status();
  };
  const Json named = {{"type", "function"}, {"function", {{"name", {long_text}}}}};
  for (const Status& status :
       {refusal("user", long_text), refusal("user", Json::array({long_text})),
        refusal("user", {{"function", {long_text}}}), refusal("user", named),
        refusal(long_text, "auto")}) {
    CHECK(status.message().find("xxx") != std::string::npos);
    CHECK(status.message().find("...") != std::string::npos);
    CHECK(status.message().size() < 500);
  }
}

}  // namespace
}  // namespace tandem
