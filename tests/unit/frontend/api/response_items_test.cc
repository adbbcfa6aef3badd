#include "frontend/api/response_items.h"

#include <nlohmann/json.hpp>

#include "tests/support/response_events.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

std::vector<std::string> Types(const std::vector<ResponseEvent>& events) {
  std::vector<std::string> types;
  for (const ResponseEvent& event : events) types.push_back(event.type.substr(9));  // "response."
  return types;
}

MessageDelta Content(std::string_view text) {
  MessageDelta delta;
  delta.AddContent(text);
  return delta;
}

MessageDelta Call(const std::string& name, const std::string& arguments) {
  MessageDelta delta;
  delta.AddCall({0, name.empty() ? "" : "call-0", name, arguments});
  return delta;
}

TEST_CASE("Response items: reasoning and a message announce themselves, grow and end") {
  const ResponseTools no_tools;
  std::string stream;
  ResponseEvents events(&stream);
  ResponseItems items(&no_tools, std::nullopt, &events);
  MessageDelta first;
  first.AddReasoning("Hm.");
  first.AddContent("A");
  items.Append(first);
  MessageDelta second = Content("B");
  items.Append(second);
  items.End(false);
  CHECK(Types(ReadResponseEvents(stream)) ==
        std::vector<std::string>{"output_item.added", "content_part.added", "reasoning_text.delta",
                                 "reasoning_text.done", "content_part.done", "output_item.done",
                                 "output_item.added", "content_part.added", "output_text.delta",
                                 "output_text.delta", "output_text.done", "content_part.done",
                                 "output_item.done"});
  REQUIRE(items.output().size() == 2);
  CHECK(items.output()[0]["content"][0]["text"] == "Hm.");
  CHECK(items.output()[1]["content"][0]["text"] == "AB");
  CHECK(items.output()[1]["status"] == "incomplete");
}

TEST_CASE(
    "Response items: a call of a namespace has its own name, one that is made up the model's") {
  const ResponseTools tools = {{"fs__ls", "ls", "fs", false}};
  ResponseItems items(&tools, std::nullopt, nullptr);
  for (const char* name : {"fs__ls", "rm"}) {
    MessageDelta delta = Call(name, "{}");
    items.Append(delta);
  }
  items.End(true);
  REQUIRE(items.output().size() == 2);
  CHECK(items.output()[0]["name"] == "ls");
  CHECK(items.output()[0]["namespace"] == "fs");
  CHECK(items.output()[1]["name"] == "rm");
  CHECK_FALSE(items.output()[1].contains("namespace"));
}

TEST_CASE("Response items: a call without a name is an item of its own") {
  const ResponseTools no_tools;
  ResponseItems items(&no_tools, std::nullopt, nullptr);
  MessageDelta first = Call("now", "{}");
  items.Append(first);
  MessageDelta second;
  second.AddCall({1, "call-1", "", "{\"a\": 1}"});
  items.Append(second);
  items.End(true);
  REQUIRE(items.output().size() == 2);
  CHECK(items.output()[0]["arguments"] == "{}");
  CHECK(items.output()[1]["name"] == "");
  CHECK(items.output()[1]["arguments"] == "{\"a\": 1}");
}

TEST_CASE("Response items: a custom tool gets the text inside its arguments, in one delta") {
  const ResponseTools tools = {{"sh", "sh", "", true}};
  std::string stream;
  ResponseEvents events(&stream);
  ResponseItems items(&tools, std::nullopt, &events);
  for (const char* piece : {"{\"inp", "ut\": \"ls ", "-l\\n\"", "}"}) {
    MessageDelta delta = Call(piece[0] == '{' ? "sh" : "", piece);
    items.Append(delta);
  }
  items.End(true);
  CHECK(Types(ReadResponseEvents(stream)) ==
        std::vector<std::string>{"output_item.added", "custom_tool_call_input.delta",
                                 "custom_tool_call_input.done", "output_item.done"});
  CHECK(items.output()[0]["type"] == "custom_tool_call");
  CHECK(items.output()[0]["input"] == "ls -l\n");
}

TEST_CASE("Response items: a call whose arguments end early is incomplete") {
  const ResponseTools tools = {{"shell", "shell", "", true}};
  ResponseItems items(&tools, std::nullopt, nullptr);
  for (const auto& [name, arguments] :
       {std::pair("f", "{}"), std::pair("f", "{\"x\": 1"), std::pair("f", ""),
        std::pair("shell", "{\"input\": \"ls")}) {
    MessageDelta call = Call(name, arguments);
    items.Append(call);
  }
  items.End(true);
  REQUIRE(items.output().size() == 4);
  CHECK(items.output()[0]["status"] == "completed");
  CHECK(items.output()[1]["status"] == "incomplete");
  CHECK(items.output()[2]["status"] == "completed");
  CHECK(items.output()[3]["status"] == "incomplete");
  CHECK(items.output()[3]["input"] == "ls");
}

TEST_CASE("Custom tool input: arguments that are cut off or of another form") {
  CHECK(CustomToolInput(R"({"input": "a\"b"})") == "a\"b");
  CHECK(CustomToolInput(R"({"input": "a)") == "a");
  CHECK(CustomToolInput(R"({"input": "a\)") == "a");
  CHECK(CustomToolInput(R"({"input": "a\ud83)") == "a");
  CHECK(CustomToolInput(R"({"input": "a\ud83d\udf8)") == "a");
  CHECK(CustomToolInput(R"({"input": ")") == "");
  CHECK(CustomToolInput(R"({"inp)") == R"({"inp)");
  CHECK(CustomToolInput(R"({"x": 1})") == R"({"x": 1})");
  CHECK(CustomToolInput("ls") == "ls");
  CHECK(CustomToolInput("") == "");
}

TEST_CASE("Response items: logprobs of a message are in its deltas, its end and its item") {
  const ResponseTools no_tools;
  std::string stream;
  ResponseEvents events(&stream);
  ResponseItems items(&no_tools, 0, &events);
  for (const char* text : {"A", ""}) {  // the second is an end token, which has no text
    MessageDelta delta = Content(text);
    delta.logprobs.push_back({{5, text, text, -0.5, 1}, {}});
    items.Append(delta);
  }
  items.End(true);
  std::vector<ResponseEvent> shown = ReadResponseEvents(stream);
  REQUIRE(shown.size() == 7);
  CHECK(shown[2].data["logprobs"].size() == 1);
  CHECK(shown[3].data["delta"] == "");
  CHECK(shown[3].data["logprobs"].size() == 1);
  CHECK(shown[4].data["logprobs"].size() == 2);
  CHECK(items.output()[0]["content"][0]["logprobs"].size() == 2);
}

TEST_CASE("Response items: no output, no items") {
  const ResponseTools no_tools;
  ResponseItems items(&no_tools, std::nullopt, nullptr);
  MessageDelta empty;
  items.Append(empty);
  items.End(true);
  CHECK(items.output().empty());
}

}  // namespace
}  // namespace tandem
