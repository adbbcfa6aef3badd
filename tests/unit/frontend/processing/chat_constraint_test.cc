// What a chat with tools, a format or reasoning asks of the engine, as it goes over the wire.

#include <nlohmann/json.hpp>

#include "frontend/processing/schema_origin.h"
#include "tests/support/api_model.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

constexpr char kTools[] = R"([{"type": "function", "function": {"name": "now", "parameters":
    {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}}}])";

// Markers that are tokens of the recorded model.
const ReasoningFormat kReasoning = {.name = "test",
                                    .aliases = "",
                                    .begin = "<|pad|>",
                                    .end = "<|begin|>",
                                    .tool_marker = "<|end|>"};

InputConfig ConfigOf(const char* tool_parser, const ReasoningFormat* reasoning = nullptr) {
  InputConfig config;
  config.parsers.tool_parser = FindToolParser(tool_parser);
  config.parsers.reasoning = reasoning;
  return config;
}

// The engine request, or {"error": …}. fields: the body's besides the messages.
json Lowered(InputConfig config, json fields, const char* path = "/v1/chat/completions") {
  const ApiModel model(std::move(config));
  if (std::string_view(path) == "/v1/chat/completions") {
    fields["messages"] = json::parse(R"([{"role": "user", "content": "hi"}])");
  }
  const auto prepared = model.Prepare(path, fields.dump());
  if (!prepared.ok()) {
    return {{"error", prepared.status().message()}, {"param", prepared.status().param()}};
  }
  json request = json::parse(DescribeRequest(prepared->processed.requests.front()));
  request["warning"] = prepared->processed.warning;
  request["origins"] = json::array();
  for (size_t i = 0; prepared->processed.message; ++i) {
    const auto origin =
        OriginOfSchema(prepared->processed.tool_tag, *prepared->processed.message, i);
    if (!origin) break;
    // A parser may have several tags for a tool.
    json& origins = request["origins"];
    if (origins.empty() || origins.back() != origin->field) origins.push_back(origin->field);
    if (prepared->processed.tool_tag.empty()) break;  // the one schema is no part of a tag
  }
  return request;
}

json ConstraintOf(const json& request) {
  INFO(request.dump());
  REQUIRE(request.contains("sampling"));
  if (!request["sampling"].contains("structured_outputs")) return nullptr;
  const json& all = request["sampling"]["structured_outputs"];
  if (!all["structural_tag"].is_null()) {
    return {{"structural_tag", json::parse(all["structural_tag"].get<std::string>())}};
  }
  if (!all["json"].is_null()) return {{"json", json::parse(all["json"].get<std::string>())}};
  return all;
}

json WithTools(json fields = json::object()) {
  fields["tools"] = json::parse(kTools);
  return fields;
}

json Named() { return {{"type", "function"}, {"function", {{"name", "now"}}}}; }

TEST_CASE("tool_choice auto asks for nothing unless calls must be held to their tools") {
  CHECK(ConstraintOf(Lowered(ConfigOf("hermes"), WithTools())).is_null());
  CHECK(ConstraintOf(Lowered(ConfigOf("hermes"), WithTools({{"tool_choice", "none"}}))).is_null());
  json strict = WithTools();
  strict["tools"][0]["function"]["strict"] = true;
  const json tag = ConstraintOf(Lowered(ConfigOf("hermes"), strict));
  CHECK(tag["structural_tag"]["format"]["type"] == "triggered_tags");
  CHECK(tag.dump().find("zone") != std::string::npos);
  const json one_call =
      ConstraintOf(Lowered(ConfigOf("hermes"), WithTools({{"parallel_tool_calls", false}})));
  CHECK(one_call["structural_tag"]["format"]["stop_after_first"] == true);
  // A format without tags cannot be held.
  CHECK(ConstraintOf(Lowered(ConfigOf("pythonic"), strict)).is_null());
  InputConfig level = ConfigOf("hermes");
  level.parsers.strict_level = StrictLevel::kFunction;
  CHECK(!ConstraintOf(Lowered(level, WithTools())).is_null());
}

TEST_CASE("tool_choice required and a named function force calls in the parser's format") {
  const json required =
      ConstraintOf(Lowered(ConfigOf("hermes"), WithTools({{"tool_choice", "required"}})));
  CHECK(required["structural_tag"]["type"] == "structural_tag");
  const json list =
      ConstraintOf(Lowered(ConfigOf("pythonic"), WithTools({{"tool_choice", "required"}})));
  CHECK(list["json"]["type"] == "array");
  const json named =
      ConstraintOf(Lowered(ConfigOf("pythonic"), WithTools({{"tool_choice", Named()}})));
  CHECK(named["json"] == json::parse(kTools)[0]["function"]["parameters"]);
  for (const char* parser : {"hermes", "pythonic"}) {
    json request = Lowered(ConfigOf(parser), WithTools({{"tool_choice", "required"}}));
    CHECK(request["sampling"]["structured_outputs"]["_backend"] == "xgrammar");
    CHECK(request["reasoning_ended"].is_null());  // there is no reasoning
  }
}

TEST_CASE("required and named calls need a parser, and named ones exclude structured_outputs") {
  InputConfig off = ConfigOf("hermes");
  off.parsers.enable_auto_tool_choice = false;
  for (InputConfig config : {off, ConfigOf("")}) {
    CHECK(Lowered(config, WithTools({{"tool_choice", "required"}}))["error"] ==
          "tool_choice=\"required\" requires --tool-call-parser to be set");
    CHECK(Lowered(config, WithTools({{"tool_choice", Named()}}))["error"] ==
          "tool_choice=function \"now\" requires --tool-call-parser to be set");
  }
  const json both = WithTools({{"tool_choice", Named()}, {"structured_outputs", {{"regex", "a"}}}});
  CHECK(Lowered(ConfigOf("hermes"), both)["error"] ==
        "You can only either use constraints for structured outputs or tools, not both.");
}

TEST_CASE("the schemas of a constraint are known by the fields that they are from") {
  json two = WithTools();
  two["tools"].push_back(two["tools"][0]);
  two["tools"][1]["function"]["name"] = "then";
  two["tools"][1]["function"]["parameters"]["required"] = json::array();
  const auto origins = [&two](const char* parser, json fields) {
    for (json& tool : two["tools"])
      tool["function"]["strict"] = parser == std::string_view("hermes");
    fields["tools"] = two["tools"];
    return Lowered(ConfigOf(parser), fields)["origins"];
  };
  const json first = "tools[0].function.parameters", second = "tools[1].function.parameters";
  CHECK(origins("hermes", json::object()) == json::array({first, second}));
  CHECK(origins("hermes", {{"tool_choice", "required"}}) == json::array({first, second}));
  CHECK(origins("hermes", {{"tool_choice", Named()}}) == json::array({first}));
  CHECK(origins("hermes", {{"tool_choice", "none"}}) == json::array());
  const json format = {{"type", "json_schema"},
                       {"json_schema", {{"name", "x"}, {"schema", {{"type", "null"}}}}}};
  CHECK(origins("hermes", {{"response_format", format}}) == json::array({first, second, ""}));
  CHECK(origins("hermes", {{"response_format", format}, {"tool_choice", "none"}}) == json::array());
  // As JSON without tags.
  CHECK(origins("pythonic", {{"tool_choice", Named()}}) == json::array({first}));
  CHECK(origins("pythonic", {{"tool_choice", "required"}}) == json::array());
}

TEST_CASE("a response_format beside tools is heeded or warned about") {
  const json schema = {{"type", "object"}};
  const json format = {{"type", "json_schema"},
                       {"json_schema", {{"name", "a"}, {"schema", schema}}}};
  const json chosen = Lowered(ConfigOf("hermes"), WithTools({{"response_format", format}}));
  CHECK(ConstraintOf(chosen)["json"] == schema);
  CHECK(chosen["warning"] != "");
  json strict = WithTools({{"response_format", format}});
  strict["tools"][0]["function"]["strict"] = true;
  const json either = Lowered(ConfigOf("hermes"), strict);
  CHECK(ConstraintOf(either)["structural_tag"]["format"]["type"] == "or");
  CHECK(either["warning"] == "");
  const json forced = Lowered(
      ConfigOf("hermes"), WithTools({{"response_format", format}, {"tool_choice", "required"}}));
  CHECK(ConstraintOf(forced).contains("structural_tag"));
  CHECK(forced["warning"] != "");
}

// The response's body where the model has written `text`.
json ResponseTo(InputConfig config, json fields, std::string_view text,
                const char* path = "/v1/chat/completions") {
  const ApiModel model(std::move(config));
  if (std::string_view(path) == "/v1/chat/completions") {
    fields["messages"] = json::parse(R"([{"role": "user", "content": "hi"}])");
  }
  const auto prepared = model.Prepare(path, fields.dump());
  INFO(prepared.status().ToString());
  REQUIRE(prepared.ok());
  wire::EngineCoreOutput output;
  output.new_token_ids = *model.tokenizer().Encode(text, false);
  output.finish_reason = wire::FinishReason::kLength;
  return json::parse(model.Respond(*prepared, {{0, output}}));
}

TEST_CASE("forced calls as JSON become calls of the message") {
  const auto message_of = [](const json& tool_choice, std::string_view text) {
    return ResponseTo(ConfigOf("pythonic"), WithTools({{"tool_choice", tool_choice}}),
                      text)["choices"][0]["message"];
  };
  const json required =
      message_of("required", R"([{"name": "now", "parameters": {"zone": "utc"}}])");
  REQUIRE(required["tool_calls"].size() == 1);
  CHECK(required["tool_calls"][0]["function"]["name"] == "now");
  CHECK(json::parse(required["tool_calls"][0]["function"]["arguments"].get<std::string>()) ==
        json({{"zone", "utc"}}));
  CHECK(required["content"] == "");
  const json named = message_of(Named(), R"({"zone": "cet"})");
  CHECK(named["tool_calls"][0]["function"]["name"] == "now");
  CHECK(named["tool_calls"][0]["function"]["arguments"] == R"({"zone": "cet"})");
}

TEST_CASE("Responses and Messages force calls as chat does") {
  const json function = json::parse(kTools)[0]["function"];
  json tool = function;
  tool["type"] = "function";
  const json response = {{"input", "hi"}, {"tools", {tool}}, {"tool_choice", "required"}};
  const json chat =
      ConstraintOf(Lowered(ConfigOf("hermes"), WithTools({{"tool_choice", "required"}})));
  CHECK(ConstraintOf(Lowered(ConfigOf("hermes"), response, "/v1/responses")) == chat);
  const json message = {{"max_tokens", 9},
                        {"messages", {{{"role", "user"}, {"content", "hi"}}}},
                        {"tools", {{{"name", "now"}, {"input_schema", function["parameters"]}}}},
                        {"tool_choice", {{"type", "any"}}}};
  CHECK(ConstraintOf(Lowered(ConfigOf("hermes"), message, "/v1/messages")) == chat);
}

TEST_CASE("gpt-oss writes its content inside a message, so a format becomes a tag") {
  InputConfig config = ConfigOf("openai");
  config.parsers.is_harmony = true;
  const json request = Lowered(config, {{"response_format", {{"type", "json_object"}}}});
  CHECK(ConstraintOf(request).contains("structural_tag"));
  CHECK(request["reasoning_ended"] == true);
}

// ---- Reasoning ----

TEST_CASE("a constraint begins after the reasoning") {
  const json format = {{"response_format", {{"type", "json_object"}}}};
  const json request = Lowered(ConfigOf("hermes", &kReasoning), format);
  CHECK(request["reasoning_ended"] == false);
  const ApiModel model;
  const auto id = [&](const char* token) {
    return json::array({*model.tokenizer().TokenToId(token)});
  };
  CHECK(request["reasoning"]["begin"] == id("<|pad|>"));
  CHECK(request["reasoning"]["end"] == id("<|begin|>"));
  // Only a call may follow its mark.
  CHECK(request["reasoning"]["tool_call"] == json::array());
  const json called =
      Lowered(ConfigOf("hermes", &kReasoning), WithTools({{"tool_choice", "required"}}));
  CHECK(called["reasoning_ended"] == false);
  CHECK(called["reasoning"]["tool_call"] == id("<|end|>"));
}

TEST_CASE("tokens in: a constraint begins where render found that it does") {
  const auto lowered = [](const ReasoningFormat& reasoning, json fields) {
    fields["token_ids"] = json::array({5});
    fields["sampling_params"] = {{"structured_outputs", {{"json_object", true}}}};
    return Lowered(ConfigOf("hermes", &reasoning), std::move(fields), "/inference/v1/generate");
  };
  const ApiModel model;
  const auto id = [&](const char* token) {
    return json::array({*model.tokenizer().TokenToId(token)});
  };
  const json waits = lowered(kReasoning, {{"reasoning_ended", false}});
  CHECK(waits["reasoning_ended"] == false);
  CHECK(waits["reasoning"]["end"] == id("<|begin|>"));
  CHECK(waits["reasoning"]["tool_call"] == json::array());
  const json context = {{"tools", json::parse(kTools)}};
  const json calls = lowered(kReasoning, {{"reasoning_ended", false}, {"parse_context", context}});
  CHECK(calls["reasoning"]["tool_call"] == id("<|end|>"));
  CHECK(lowered(kReasoning, {{"reasoning_ended", true}})["reasoning_ended"] == true);
  CHECK(lowered(kReasoning, json::object())["reasoning_ended"].is_null());
  // What the engine cannot see end, it does not wait for.
  ReasoningFormat words = kReasoning;
  words.end = "</think>";
  CHECK(lowered(words, {{"reasoning_ended", false}})["reasoning_ended"] == true);
}

TEST_CASE("a constraint begins at once where there is no reasoning to wait for") {
  json format = {{"response_format", {{"type", "json_object"}}}};
  CHECK(Lowered(ConfigOf("hermes"), format)["reasoning_ended"].is_null());
  const json hidden = {{"response_format", {{"type", "json_object"}}},
                       {"include_reasoning", false}};
  CHECK(Lowered(ConfigOf("hermes", &kReasoning), hidden)["reasoning_ended"] == true);
  CHECK(Lowered(ConfigOf("hermes", &kReasoning), json::object())["reasoning_ended"].is_null());
  // Text that is content until a mark begins reasoning.
  ReasoningFormat content = kReasoning;
  content.start = ReasoningFormat::Start::kContent;
  CHECK(Lowered(ConfigOf("hermes", &content), format)["reasoning_ended"] == true);
  // An end of several tokens may be written with other ones.
  ReasoningFormat words = kReasoning;
  words.end = "</think>";
  const json unseen = Lowered(ConfigOf("hermes", &words), format);
  CHECK(unseen["reasoning_ended"] == true);
  CHECK(unseen["reasoning"].is_null());
  // Reasoning that the template switches off.
  ReasoningFormat switched = kReasoning;
  switched.switches = "enable_thinking";
  format["chat_template_kwargs"] = {{"enable_thinking", false}};
  CHECK(Lowered(ConfigOf("hermes", &switched), format)["reasoning_ended"] == true);
}

// Formats whose reasoning the prompt of the recorded model opens, or leaves open.
struct FormatCase {
  ReasoningFormat format;
  bool is_hidden = false;  // the request does not include reasoning
};

std::vector<FormatCase> FormatsHeldFromTheFirstToken() {
  ReasoningFormat opened = kReasoning;
  opened.begin = "<|im_start|>";
  ReasoningFormat opened_words = opened;
  opened_words.end = "</think>";  // several tokens
  ReasoningFormat words = kReasoning;
  words.end = "</think>";
  return {{opened, true}, {opened_words, false}, {words, false}, {kReasoning, true}};
}

TEST_CASE("text that a constraint holds from the first token on is no reasoning") {
  constexpr std::string_view kAnswer = R"({"a": 1})";
  constexpr std::string_view kCall =
      "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": \"utc\"}}\n</tool_call>";
  for (const FormatCase& c : FormatsHeldFromTheFirstToken()) {
    INFO(c.format.begin << " " << c.format.end);
    const InputConfig config = ConfigOf("hermes", &c.format);
    json format = {{"response_format", {{"type", "json_object"}}}};
    json required = WithTools({{"tool_choice", "required"}});
    for (json* fields : {&format, &required}) {
      if (c.is_hidden) (*fields)["include_reasoning"] = false;
      CHECK(Lowered(config, *fields)["reasoning_ended"] == true);
    }
    const json answer = ResponseTo(config, format, kAnswer);
    CHECK(answer["choices"][0]["message"]["content"] == kAnswer);
    CHECK(answer["choices"][0]["message"]["reasoning"].is_null());
    const json called = ResponseTo(config, required, kCall)["choices"][0]["message"];
    REQUIRE(called["tool_calls"].size() == 1);
    CHECK(called["reasoning"].is_null());
  }
  // Through another API.
  const ReasoningFormat words = FormatsHeldFromTheFirstToken()[1].format;
  const json response =
      ResponseTo(ConfigOf("hermes", &words),
                 {{"input", "hi"}, {"text", {{"format", {{"type", "json_object"}}}}}}, kAnswer,
                 "/v1/responses");
  REQUIRE(response["output"].size() == 1);
  CHECK(response["output"][0]["content"][0]["text"] == kAnswer);
}

TEST_CASE("free text before calls may be reasoning, which the calls' grammar lets pass") {
  const ReasoningFormat opened = FormatsHeldFromTheFirstToken()[0].format;
  json strict = WithTools({{"include_reasoning", false}});
  strict["tools"][0]["function"]["strict"] = true;
  // Hidden reasoning comes before the grammar too.
  CHECK(Lowered(ConfigOf("hermes", &opened), strict)["reasoning_ended"] == false);
  // Where the engine cannot see its end, the parser can.
  const ReasoningFormat words = FormatsHeldFromTheFirstToken()[1].format;
  strict["include_reasoning"] = true;
  const InputConfig config = ConfigOf("hermes", &words);
  CHECK(Lowered(config, strict)["reasoning_ended"] == true);
  const json message = ResponseTo(config, strict, "hm</think>Hello")["choices"][0]["message"];
  CHECK(message["reasoning"] == "hm");
  CHECK(message["content"] == "Hello");
}

TEST_CASE("a grammar of calls waits for a call where the text decides about reasoning") {
  json strict = WithTools();
  strict["tools"][0]["function"]["strict"] = true;
  ToolTags tags = kHermesTags;
  tags.trigger = kReasoning.tool_marker;
  ToolParserRow row = *FindToolParser("hermes");
  row.tags = &tags;
  InputConfig config = ConfigOf("hermes", &kReasoning);
  config.parsers.reasoning_is_guessed = true;
  // A call's mark does not end this reasoning.
  CHECK(Lowered(config, strict)["reasoning_ended"] == true);
  config.parsers.tool_parser = &row;
  const json waits = Lowered(config, strict);
  CHECK(waits["reasoning_ended"] == false);
  CHECK(waits["reasoning"]["tool_call"].size() == 1);
  // What the whole text must be cannot wait for reasoning that may never come.
  const json format = {{"response_format", {{"type", "json_object"}}}};
  CHECK(Lowered(config, format)["reasoning_ended"] == true);
  strict["tool_choice"] = "required";
  CHECK(Lowered(config, strict)["reasoning_ended"] == true);
}

}  // namespace
}  // namespace tandem
