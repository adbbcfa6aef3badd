#include "frontend/processing/message_plan.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "frontend/parsers/response_template.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

ChatRequest RequestWith(const char* extra) {
  Json body = Json::parse(R"({"model": "m", "messages": [{"role": "user", "content": "x"}]})");
  body.update(Json::parse(extra));
  auto request = ParseChatRequest(std::move(body));
  REQUIRE(request.ok());
  return std::move(request).value();
}

constexpr char kTool[] = R"({"tools": [{"type": "function", "function": {"name": "f"}}]})";

TEST_CASE("parsers are chosen by name, and an unknown name lists the known ones") {
  const auto both = ChooseParsers("qwen3_xml", "qwen3", "");
  REQUIRE(both.ok());
  CHECK(both->tool_parser->name == "qwen3_coder");
  CHECK(both->reasoning->name == "qwen3");
  const auto unknown = ChooseParsers("hermez", "", "");
  REQUIRE(!unknown.ok());
  CHECK(unknown.status().message().find("hermes") != std::string::npos);
  CHECK(!ChooseParsers("", "qwen", "").ok());
}

TEST_CASE("parsers that no flag names are those of the chat template") {
  const auto hermes = ChooseParsers("", "", "{{ '<tool_call>' }}");
  REQUIRE(hermes.ok());
  CHECK(hermes->tool_parser->name == "hermes");
  CHECK(hermes->reasoning == nullptr);
  const auto qwen = ChooseParsers("", "", "<tool_call> <function= <think> enable_thinking");
  REQUIRE(qwen.ok());
  CHECK(qwen->tool_parser->name == "qwen3_coder");
  CHECK(qwen->reasoning->name == "qwen3");
  const auto harmony = ChooseParsers("", "", "<|start|>assistant<|channel|>analysis");
  REQUIRE(harmony.ok());
  CHECK(harmony->tool_parser->name == "openai");
  CHECK(harmony->is_harmony);
  const std::string deepseek = "<｜tool▁calls▁begin｜>";
  CHECK(ChooseParsers("", "", deepseek)->tool_parser->name == "deepseek_v31");
  CHECK(ChooseParsers("", "", deepseek + "```json")->tool_parser->name == "deepseek_v3");
  CHECK(ChooseParsers("", "", "```json")->tool_parser == nullptr);
  const std::pair<const char*, const char*> signs[] = {
      {"<|start_header_id|> Environment: ipython", "llama3_json"},
      {"<|tool_list_start|>", "lfm2"},
      {"<|tools_prefix|>", "apertus"},
      {"<function_call>", "granite-20b-fc"},
      {"<function_calls>", "olmo3"},
      {"<start_function_call>", "functiongemma"},
      {"function call<|role_sep|>", "gigachat3"},
      {"<function name=", "minicpm5"},
      {"<dots_function_call> <invoke", "dots"},
      {"<tool_calls> <tool_call>f<tool_sep><arg_key>", "hy_v3"},
      {"<tool_calls:6c> <tool_call:6c>f<arg_key:6c>", "hy_v3"},
      {"<tool_calls> <tool_call>f<arg_key>", "hy_v3"},
  };
  for (const auto& [source, parser] : signs) {
    INFO(source);
    const auto config = ChooseParsers("", "", source);
    REQUIRE(config->tool_parser != nullptr);
    CHECK(config->tool_parser->name == parser);
  }
  const auto none = ChooseParsers("none", "none", "<tool_call><think>");
  REQUIRE(none.ok());
  CHECK(none->tool_parser == nullptr);
  CHECK(none->reasoning == nullptr);
}

TEST_CASE("where the template shows no calls, config.json's model_type may choose") {
  const auto tool_parser = [](std::string_view model_type, std::string_view source) {
    const auto config = ChooseParsers("", "", source, {}, model_type);
    REQUIRE(config.ok());
    return config->tool_parser == nullptr ? std::string_view() : config->tool_parser->name;
  };
  CHECK(tool_parser("gpt_oss", "") == "openai");
  CHECK(ChooseParsers("", "", "", {}, "gpt_oss")->is_harmony);
  CHECK(tool_parser("mistral", "[AVAILABLE_TOOLS]") == "mistral");
  CHECK(tool_parser("mistral", "<|im_start|>") == "");
  CHECK(tool_parser("mistral", "<tool_call>") == "hermes");
  CHECK(tool_parser("llama", "") == "");
  CHECK(ChooseParsers("none", "none", "", {}, "gpt_oss")->tool_parser == nullptr);
}

TEST_CASE("markers of reasoning have the suffix that the chat template shows") {
  const auto markers = [](std::string_view parser, std::string_view source) {
    // The markers outlive the config that they were made with.
    const auto copy = std::make_unique<ParserConfig>(*ChooseParsers("none", parser, source));
    return copy->reasoning == nullptr
               ? std::string()
               : std::string(copy->reasoning->begin) + " " + std::string(copy->reasoning->end);
  };
  CHECK(markers("hy_v4", "<think:6c>x</think:6c>") == "<think:6c> </think:6c>");
  CHECK(markers("hy_v3", "a <think:6c>") == "<think:6c> </think:6c>");
  CHECK(markers("", "<think:6c>x</think:6c>") == "<think:6c> </think:6c>");
  for (const char* plain : {"", "<think>", "<think:", "<think:{{ s }}>", "<think:a b>"}) {
    CHECK(markers("hy_v4", plain) == "<think> </think>");
  }
  CHECK(markers("qwen3", "<think:6c>") == "<think> </think>");

  const auto config = ChooseParsers("none", "hy_v4", "<think:6c></think:6c>");
  REQUIRE(config.ok());
  const auto start = [&](std::string_view prompt) {
    return (*PlanMessage(*config, RequestWith("{}"), prompt, JsonDocument()))->format.start;
  };
  CHECK(start("<user>hi<bot><think:6c>") == ReasoningStart::kReasoning);
  CHECK(start("<user>hi<bot><think:6c></think:6c>") == ReasoningStart::kContent);
  const auto plan = PlanMessage(*config, RequestWith("{}"), "<think:6c>", JsonDocument());
  MessageParser parser((*plan)->format);
  std::string reasoning, content;
  for (const char* piece : {"hm</thin", "k></think:", "6c>yes"}) {
    const ParsedDelta delta = parser.Feed(piece);
    reasoning += delta.reasoning;
    content += delta.content;
  }
  content += parser.End().content;
  CHECK(reasoning == "hm</think>");
  CHECK(content == "yes");
}

TEST_CASE("the parsers of a checkpoint's own description go together") {
  const Json fields = {{"thinking", {{"open", "<t>"}, {"close", {"</t>", "</t>\n"}}}},
                       {"tool_calls", {{"open", "<c>"}, {"content", "json"}}},
                       {"content", Json::object()}};
  ParserConfig own;
  const auto describe = [&own](const Json& described) {
    auto parsed = ResponseTemplate::Parse({{"start_anchor", "<a>"}, {"fields", described}});
    REQUIRE(parsed.ok());
    own.response_template = std::make_shared<const ResponseTemplate>(std::move(*parsed));
  };
  const auto choose = [&own](const char* tools, const char* reasoning) {
    const auto config = ChooseParsers(tools, reasoning, "<tool_call><think>", own);
    if (!config.ok()) return config.status().message();
    return std::string(config->tool_parser ? config->tool_parser->name : "none") + " " +
           std::string(config->reasoning ? config->reasoning->name : "none") +
           (config->response_template ? " own" : "");
  };
  const auto has = [](const std::string& message, const char* part) {
    INFO(message);
    return message.find(part) != std::string::npos;
  };
  CHECK(has(choose("hf", ""), "needs a response_template in the model's tokenizer_config.json"));
  CHECK(has(choose("", "beam"), "--reasoning-parser beam needs"));
  describe(fields);
  CHECK(choose("", "") == "hermes deepseek_r1");
  CHECK(choose("hf", "hf") == "hf hf own");
  CHECK(choose("beam", "") == "hf hf own");
  CHECK(choose("", "hf") == "hf hf own");
  CHECK(choose("hf", "none") == "hf none own");
  CHECK(choose("none", "hf") == "none hf own");
  CHECK(has(choose("hf", "qwen3"), "--reasoning-parser must be hf, none or absent, not qwen3"));
  CHECK(has(choose("hermes", "hf"), "--tool-call-parser must be hf, none or absent, not hermes"));
  describe({{"content", Json::object()}});
  CHECK(has(choose("hf", ""), "needs tool_calls"));
  CHECK(has(choose("", "hf"), "needs thinking"));
  describe(fields);
  const auto config = ChooseParsers("hf", "hf", "", own);
  CHECK(config->reasoning->begin == "<t>");
  CHECK(config->reasoning->end == "</t>");

  const auto plan = [&](const Json& extra, const char* prompt = "") {
    Json body = Json::parse(kTool);
    body.update(extra);
    return PlanMessage(*config, RequestWith(body.dump().c_str()), prompt, JsonDocument());
  };
  const auto planned = plan(Json::object(), "<a>x<t></t><a><t>");
  REQUIRE(planned.ok());
  CHECK((*planned)->format.prompt_part == "<t>");
  CHECK((*planned)->format.start == ReasoningStart::kReasoning);
  CHECK((*planned)->shows_special_tokens);
  CHECK(plan({{"tool_choice", "none"}}).ok());
  // Without a grammar of the format nothing can be made sure of.
  CHECK(plan({{"tool_choice", "required"}}).status().param() == "tool_choice");
  const Json named = {{"type", "function"}, {"function", {{"name", "f"}}}};
  CHECK(plan({{"tool_choice", named}}).status().param() == "tool_choice");
  CHECK(plan({{"parallel_tool_calls", false}}).status().param() == "parallel_tool_calls");
  const Json strict = {{"type", "function"}, {"function", {{"name", "f"}, {"strict", true}}}};
  CHECK(plan({{"tools", Json::array({strict})}}).status().param() == "tools");
}

TEST_CASE("calls that a checkpoint's description spells out can be forced") {
  const auto choose = [](Json calls, bool strict = true) {
    calls["content"] = "json";
    auto parsed =
        ResponseTemplate::Parse({{"start_anchor", "<a>"}, {"fields", {{"tool_calls", calls}}}});
    REQUIRE(parsed.ok());
    ParserConfig own;
    own.enforce_strict_tool_calling = strict;
    own.response_template = std::make_shared<const ResponseTemplate>(std::move(*parsed));
    auto config = ChooseParsers("hf", "", "", std::move(own));
    REQUIRE(config.ok());
    return *std::move(config);
  };
  const auto spelling = [](const ParserConfig& config) {
    const ToolTags* const tags = config.tool_parser->tags;
    if (tags == nullptr) return std::string("none");
    std::string text(tags->trigger);
    text.append(" ").append(tags->call.begin).append("N").append(tags->call.middle).append("A");
    return text.append(tags->call.end);
  };
  const Json by_words = {{"open", {"<c>", "<c>\n"}},
                         {"close", "</c>"},
                         {"transform", {{"type", "function"}, {"function", "{content}"}}}};
  CHECK(spelling(choose(by_words)) == R"(<c> <c>{"name": "N", "arguments": A}</c>)");
  CHECK(spelling(choose(by_words, false)) == "none");
  Json by_name = {{"open_pattern", R"x(<c>\n?<f\.(?P<name>[\w)(]+|\))>\s*\n+?)x"},
                  {"close", {"</f></c>"}},
                  {"transform", {{"function", {{"name", "{name}"}, {"arguments", "{content}"}}}}}};
  const ParserConfig named = choose(by_name);
  CHECK(spelling(named) == "<c><f. <c><f.N>\nA</f></c>");
  CHECK(named.tool_parser->forced == ForcedCall::kNative);
  for (const char* open : {R"x((?P<name>\w+)>)x", R"x(<(c|d)(?P<name>\w+)>)x",
                           R"x(<(?P<name>\w+)>[ ])x", R"x(<(?P<name>\w+)>\d)x"}) {
    by_name["open_pattern"] = open;
    CHECK(spelling(choose(by_name)) == "none");
  }
  const auto plan = [&](const char* name, const Json& extra) {
    Json body = {{"tools", Json::array({{{"type", "function"}, {"function", {{"name", name}}}}})}};
    body.update(extra);
    return PlanMessage(named, RequestWith(body.dump().c_str()), "", JsonDocument()).status();
  };
  CHECK(plan("f", {{"tool_choice", "required"}}).ok());
  CHECK(plan("f", {{"parallel_tool_calls", false}}).ok());
  CHECK(plan("f-g", Json::object()).ok());
  CHECK(plan("f-g", {{"tool_choice", "required"}}).param() == "tools");
}

TEST_CASE("gpt-oss always reasons") {
  ParserConfig config;
  config.is_harmony = true;
  const auto plan = [&](const char* body) {
    return PlanMessage(config, RequestWith(body), "", JsonDocument());
  };
  CHECK(plan(R"({"reasoning_effort": "none"})").status().param() == "reasoning_effort");
  CHECK(plan(R"({"reasoning_effort": "low"})").ok());
  config.is_harmony = false;
  CHECK(plan(R"({"reasoning_effort": "none"})").ok());
}

TEST_CASE("force_nonempty_content makes reasoning the content of an empty message") {
  ParserConfig config;
  const auto may_be_content = [&](const char* parser, const char* body) {
    config.reasoning = FindReasoningFormat(parser);
    return (*PlanMessage(config, RequestWith(body), "", JsonDocument()))
        ->format.reasoning_may_be_content;
  };
  constexpr char kForced[] = R"({"chat_template_kwargs": {"force_nonempty_content": true}})";
  CHECK(may_be_content("nemotron_v3", kForced));
  CHECK_FALSE(may_be_content("nemotron_v3", "{}"));
  CHECK_FALSE(may_be_content("qwen3", kForced));
}

TEST_CASE("without strict tool calling a format has no grammar of its own") {
  ParserConfig loose;
  loose.enforce_strict_tool_calling = false;
  const auto tool_parser = [&](std::string_view name) {
    const auto config = ChooseParsers(name, "", "", loose);
    REQUIRE(config.ok());
    CHECK(config->tool_parser->tags == nullptr);
    return config->tool_parser;
  };
  CHECK(tool_parser("hermes")->forced == ForcedCall::kJson);
  CHECK(tool_parser("hermes")->name == "hermes");
  CHECK(tool_parser("gemma4")->forced == ForcedCall::kJson);
  CHECK(tool_parser("mistral")->forced == ForcedCall::kNativeList);
  const auto harmony = ChooseParsers("openai", "", "", loose);
  CHECK(harmony->is_harmony);
  CHECK(harmony->tool_parser->forced == ForcedCall::kNative);
}

TEST_CASE("a request without tools and without reasoning has no plan") {
  ParserConfig config;
  config.tool_parser = FindToolParser("hermes");
  const auto plan = PlanMessage(config, RequestWith("{}"), "", JsonDocument());
  REQUIRE(plan.ok());
  CHECK(*plan == nullptr);
}

TEST_CASE("tools are called by the model's own choice") {
  ParserConfig config;
  config.tool_parser = FindToolParser("hermes");
  const auto plan = PlanMessage(config, RequestWith(kTool), "", JsonDocument());
  REQUIRE(plan.ok());
  REQUIRE(*plan != nullptr);
  CHECK((*plan)->format.choice == MessageFormat::Choice::kAuto);
  CHECK((*plan)->format.tools->Has("f"));
  CHECK((*plan)->shows_special_tokens);
  config.enable_auto_tool_choice = false;
  CHECK(!PlanMessage(config, RequestWith(kTool), "", JsonDocument()).ok());
  CHECK(!PlanMessage({}, RequestWith(kTool), "", JsonDocument()).ok());
}

TEST_CASE("tool_choice decides whether calls are looked for, and which") {
  ParserConfig config;
  config.tool_parser = FindToolParser("hermes");
  const auto plan_for = [&](const char* choice) {
    Json body = Json::parse(kTool);
    body["tool_choice"] = Json::parse(choice);
    return PlanMessage(config, RequestWith(body.dump().c_str()), "", JsonDocument());
  };
  CHECK(*plan_for(R"("none")") == nullptr);
  const auto required = plan_for(R"("required")");
  REQUIRE(required.ok());
  CHECK((*required)->format.choice == MessageFormat::Choice::kRequired);
  CHECK((*required)->looks_for_calls());
  const auto named = plan_for(R"({"type": "function", "function": {"name": "f"}})");
  REQUIRE(named.ok());
  CHECK((*named)->format.choice == MessageFormat::Choice::kNamed);
  CHECK((*named)->format.named_tool == "f");
  config.enable_auto_tool_choice = false;
  CHECK(plan_for(R"("required")").status().param() == "tool_choice");
}

TEST_CASE("the prompt's last marker decides what a text begins with") {
  ParserConfig config;
  config.reasoning = FindReasoningFormat("qwen3");
  const auto start = [&](const char* prompt, const Json& variables) {
    const auto plan = PlanMessage(config, RequestWith("{}"), prompt, JsonDocument(variables));
    return (*plan)->format.start;
  };
  CHECK(start("a<think>\n", Json()) == ReasoningStart::kReasoning);
  CHECK(start("a<think>\n\n</think>", Json()) == ReasoningStart::kContent);
  CHECK(start("a", Json()) == ReasoningStart::kUnknown);
  CHECK(start("a<think>", {{"enable_thinking", false}}) == ReasoningStart::kOff);
}

TEST_CASE("parsers of a template that has markers leave it to the text whether it is reasoning") {
  constexpr std::string_view kStrips = "{{ content.split('</think>')[-1] }}";
  const auto start = [](const ParserConfig& config, const char* prompt) {
    return (*PlanMessage(config, RequestWith("{}"), prompt, JsonDocument()))->format.start;
  };
  const auto guessed = ChooseParsers("", "", kStrips);
  REQUIRE(guessed.ok());
  CHECK(guessed->reasoning_is_guessed);
  CHECK(start(*guessed, "a") == ReasoningStart::kByText);
  CHECK(start(*guessed, "a<think>") == ReasoningStart::kReasoning);
  CHECK(start(*guessed, "a<think></think>") == ReasoningStart::kContent);
  const auto named = ChooseParsers("", "deepseek_r1", kStrips);
  REQUIRE(named.ok());
  CHECK_FALSE(named->reasoning_is_guessed);
  CHECK(start(*named, "a") == ReasoningStart::kUnknown);
  // Text of this format is content up to a marker, however it is chosen.
  const auto mistral = ChooseParsers("", "", "[THINK]");
  CHECK(start(*mistral, "a") == ReasoningStart::kUnknown);
}

}  // namespace
}  // namespace tandem
