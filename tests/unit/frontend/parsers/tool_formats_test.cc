// Formats of calls for which nothing is recorded: cases by hand, each text whole and cut at every
// place.

#include <nlohmann/json.hpp>

#include "frontend/parsers/message_parser.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

const Json& Tools() {
  static const Json tools = Json::parse(R"([
      {"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                       "dry": {"type": "boolean"}, "where": {"type": "object"}}}}},
      {"type": "function", "function": {"name": "now"}}])");
  return tools;
}

// Content, then "|name(arguments)" for each call.
std::string Sum(const char* parser_name, const std::vector<std::string_view>& pieces) {
  const ToolSet tools(Tools());
  MessageFormat format;
  format.tool_parser = FindToolParser(parser_name);
  REQUIRE(format.tool_parser != nullptr);
  format.tools = &tools;
  MessageParser parser(format);
  std::string content;
  std::vector<ToolCallDelta> calls;
  const auto add = [&](const ParsedDelta& delta) {
    content += delta.content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (call.index == static_cast<int>(calls.size())) {
        calls.push_back(call);
      } else {
        calls.back().arguments += call.arguments;
      }
    }
  };
  for (const std::string_view piece : pieces) add(parser.Feed(piece));
  add(parser.End());
  for (const ToolCallDelta& call : calls) content += "|" + call.name + "(" + call.arguments + ")";
  return content;
}

void Check(const char* parser, std::string_view text, std::string_view expected) {
  INFO(parser << ": " << text);
  CHECK(Sum(parser, {text}) == expected);
  for (size_t cut = 1; cut < text.size(); ++cut) {
    REQUIRE(Sum(parser, {text.substr(0, cut), text.substr(cut)}) == expected);
  }
}

TEST_CASE("lfm2: Python calls between two tokens") {
  Check("lfm2", "<|tool_call_start|>[weather(city='Oslo', days=3), now()]<|tool_call_end|>",
        R"(|weather({"city": "Oslo", "days": 3})|now({}))");
  Check("lfm2", "Let me see. <|tool_call_start|>[now()]<|tool_call_end|> Done.",
        "Let me see.  Done.|now({})");
  Check("lfm2", "<|tool_call_start|>[now()]", "|now({})");
  Check("lfm2", "<|tool_call_start|>[weather(city=", "<|tool_call_start|>[weather(city=");
  Check("lfm2", "[now()]", "[now()]");
}

TEST_CASE("apertus: a list of objects whose one key is the name") {
  Check("apertus",
        R"(<|tools_prefix|>[{"weather": {"city": "Oslo"}}, {"now": {}}]<|tools_suffix|>)",
        R"(|weather({"city": "Oslo"})|now({}))");
  Check("apertus", R"(I look.<|tools_prefix|> [ { "now" : {} } ] <|tools_suffix|> Done.)",
        "I look.  Done.|now({})");
  Check("apertus", R"(<|tools_prefix|>[{"now": {}}])", "|now({})");
  Check("apertus", R"(<|tools_prefix|>[{"now": {}}, {"wea)", "|now({})");
  Check("apertus", R"(<|tools_prefix|>[{"weather": {"city": "Os)", R"(|weather({"city": "Os))");
  Check("apertus", "<|tools_prefix|>[1, 2]<|tools_suffix|>", "<|tools_prefix|>[1, 2]");
}

TEST_CASE("granite-20b-fc: a JSON object after each marker") {
  Check("granite-20b-fc",
        R"(<function_call> {"name": "weather", "arguments": {"city": "Oslo"}} <function_call> )"
        R"({"name": "now", "arguments": {}})",
        R"(|weather({"city": "Oslo"})|now({}))");
  Check("granite-20b-fc", R"(Yes <function_call> {"name": "now", "arguments": {)", "Yes|now({)");
  Check("granite-20b-fc", "<function_call> none", "<function_call> none");
}

TEST_CASE("gigachat3: a JSON object after a role or a token") {
  Check("gigachat3",
        "I look.<|message_sep|>\n\nfunction call<|role_sep|>\n"
        R"({"name": "weather", "arguments": {"city": "Oslo"}})",
        R"(I look.|weather({"city": "Oslo"}))");
  Check("gigachat3", R"(<|function_call|>{"name": "now", "arguments": {}})", "|now({})");
  Check("gigachat3", "A function call is easy.", "A function call is easy.");
}

TEST_CASE("functiongemma: quotes around every value, whose type is its schema's") {
  Check("functiongemma",
        "<start_function_call>call:weather{city:<escape>3 {a}<escape>,days:<escape>3<escape>,"
        "dry:<escape>true<escape>,where:<escape>{\"a\": 1}<escape>}<end_function_call>"
        "<start_function_call>call:now{}<end_function_call>",
        R"(|weather({"city": "3 {a}", "days": 3, "dry": true, "where": {"a":1}})|now({}))");
  Check("functiongemma", "<start_function_call>call:weather{days:3,other:<escape>1<escape>}",
        R"(|weather({"days": 3, "other": "1"}))");
  Check("functiongemma", "Hm <start_function_call>no", "Hm <start_function_call>no");
}

TEST_CASE("minicpm5: an element per parameter, with or without CDATA") {
  Check("minicpm5",
        "Well. <function name=\"weather\"><param name=\"city\"> Oslo </param><param "
        "name=\"days\">3</param><param name=\"dry\"><![CDATA[true]]></param></function>\n"
        "<function name='now'></function>",
        R"(Well.|weather({"city": "Oslo", "days": 3, "dry": true})|now({}))");
  Check("minicpm5",
        "<function name=\"weather\"><param name=\"city\"><![CDATA[</param> a]]></param></function>",
        R"(|weather({"city": "</param> a"}))");
  Check("minicpm5", "<function name=\"weather\"><param name=\"city\">Os",
        R"(|weather({"city": "Os))");
}

TEST_CASE("dots: invokes in one element") {
  Check("dots",
        "<dots_function_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">\nOslo\n"
        "</parameter>\n<parameter name=days>3</parameter>\n</invoke>\n<invoke name=now></invoke>\n"
        "</dots_function_call>",
        R"(|weather({"city": "Oslo", "days": 3})|now({}))");
  Check("dots", "<dots_function_call><invoke name=other></invoke></dots_function_call> a", " a");
}

TEST_CASE("mimo: qwen3_coder's tags around values as they are") {
  Check("mimo",
        "Ok <tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>"
        "<parameter=days>3</parameter>\n<parameter=dry>true</parameter>\n</function>\n</tool_call>",
        R"(Ok|weather({"city": "\nOslo\n", "days": 3, "dry": true}))");
  Check("mimo", "<tool_call><function=now></function></tool_call>", "|now({})");
  Check("mimo", "<tool_call><function=weather><parameter=city></parameter></function></tool_call>",
        R"(|weather({"city": ""}))");
  Check("mimo", "<tool_call><function=weather><parameter=city>a\n<parameter=days>3</function>",
        R"(|weather({"city": "a\n", "days": 3}))");
  Check("mimo", "<tool_call><function=weather><parameter=city>Os", R"(|weather({"city": "Os))");
}

TEST_CASE("hy_v3 and hy_v4: pairs of keys and values, with or without a suffix") {
  Check("hy_v3",
        "Well.<tool_calls>\n<tool_call>weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value> a "
        "\"b\" </arg_value>\n<arg_key>days</arg_key><arg_value>3</arg_value>\n</tool_call>\n"
        "<tool_call>now<tool_sep></tool_call>\n</tool_calls> Done.",
        R"(Well.|weather({"city": " a \"b\" ", "days": 3})|now({}))");
  Check("hy_v4",
        "<tool_calls:6c><tool_call:6c>weather<arg_key:6c>dry</arg_key:6c><arg_value:6c>true"
        "</arg_value:6c><arg_key:6c>city</arg_key:6c><arg_value:6c></arg_value></arg_value:6c>"
        "</tool_call:6c><tool_call:6c>now</tool_call:6c></tool_calls:6c>",
        R"(|weather({"dry": true, "city": "</arg_value>"})|now({}))");
  // Cut off: a text stays open, what is no text is left out.
  Check("hy_v3", "<tool_calls><tool_call>weather<tool_sep><arg_key>city</arg_key><arg_value>Os",
        R"(|weather({"city": "Os))");
  Check("hy_v3", "<tool_calls><tool_call>weather<tool_sep><arg_key>days</arg_key><arg_value>1",
        "|weather({})");
  Check("hy_v3", "<tool_calls><tool_call>wea", "");
  Check("hy_v3", "<tool_calls><tool_call>now</tool_calls><tool_call>now</tool_call>", "|now({})");
  Check("hy_v3", "<tool_calls_x> <tool_calls:a b> <tool_calls: <tool_calls",
        "<tool_calls_x> <tool_calls:a b> <tool_calls: <tool_calls");
}

TEST_CASE("hy_v3 and hy_v4 think by reasoning_effort") {
  const auto start = [](const char* name, const Json& variables) {
    return ReasoningStartAfter(*FindReasoningFormat(name), "", variables);
  };
  CHECK(start("hy_v3", Json()) == ReasoningStart::kOff);
  CHECK(start("hy_v3", {{"reasoning_effort", "high"}}) == ReasoningStart::kUnknown);
  CHECK(start("hy_v4", Json()) == ReasoningStart::kUnknown);
  for (const char* name : {"hy_v3", "hy_v4"}) {
    CHECK(start(name, {{"reasoning_effort", "no_think"}}) == ReasoningStart::kOff);
  }
}

}  // namespace
}  // namespace tandem
