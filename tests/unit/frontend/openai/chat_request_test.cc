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
  CHECK(ForTemplate(parts, false) == "a\nb\nc");
  CHECK(ForTemplate(parts, true) ==
        Json::array({TextPart("a"), TextPart("b"), TextPart(""), TextPart("c")}));
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
        Json::array({TextPart("a"), TextPart("b"), TextPart("c"), TextPart("d")}));
}

}  // namespace
}  // namespace tandem
