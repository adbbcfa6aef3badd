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

TEST_CASE("functiongemma: bare values are JSON, or texts") {
  Check("functiongemma",
        "<start_function_call>call:f{a:nan,b:-inf,c:.5,d:07,e:1.,f:-1e3,g:12345678901234567890123,"
        "h:null,i:1e999}"
        "<end_function_call>",
        R"(|f({"a": "nan", "b": "-inf", "c": 0.5, "d": 7, "e": 1, "f": -1e3, )"
        R"("g": 12345678901234567890123, "h": null, "i": "1e999"}))");
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

TEST_CASE("plamo3: a name and arguments between words of their own") {
  const std::string begin = "<|plamo:begin_tool_requests:plamo|>";
  const std::string end = "<|plamo:end_tool_requests:plamo|>";
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>" + name +
           "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
           "<|plamo:constrain|>json<|plamo:msg|>" +
           arguments + "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>";
  };
  Check("plamo3",
        "I look." + begin + call("weather", R"({"city": "Oslo"})") + call("now", "") + end +
            "<|plamo:tag|>",
        R"(I look.|weather({"city": "Oslo"})|now({}))");
  Check("plamo3", begin + call("now", "{}") + end + " Done.<|plamo:tag|>", " Done.|now({})");
  Check("plamo3",
        begin +
            "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>now"
            "<|plamo:end_tool_name:plamo|><|plamo:end_tool_request:plamo|>" +
            end,
        "|now({})");
  const std::string whole = begin + call("weather", R"({"city": "Oslo"})");
  Check("plamo3", whole.substr(0, whole.find("slo")), R"(|weather({"city": "O))");
  Check("plamo3", "a <|plamo: b", "a <|plamo: b");
}

TEST_CASE("minimax_m3: elements in elements, after a marker each") {
  const auto with_marker = [](std::string text) {
    const std::string marker = "]<]minimax[>[";
    std::string whole;
    for (const char letter : text) whole += letter == '%' ? marker : std::string(1, letter);
    return whole;
  };
  Check("minimax_m3",
        with_marker("Well.\n%<tool_call>\n%<invoke name=\"weather\">%<city> Oslo %</city>\n"
                    "%<days>3%</days>%<dry>true%</dry>%<where>%<x>1%</x>%<x>2%</x>%<y>%</y>"
                    "%</where>%</invoke>\n%<invoke name=now>%</invoke>%</tool_call> and more"),
        R"(Well.|weather({"city":" Oslo ","days":3,"dry":true,"where":{"x":["1","2"],"y":""}}))"
        "|now({})");
  Check("minimax_m3",
        with_marker("%<tool_call>%<invoke name='weather'>%<where>%</where>"
                    "%<days>3%</days>%<city>Os"),
        R"(|weather({"where":{},"days":3}))");
  Check(
      "minimax_m3",
      with_marker("%<tool_call>%<invoke name=\"weather\">%<where>a %<b>c%</b>%</where>%</invoke>"),
      R"(|weather({"where":{"b":"c","$text":"a "}}))");
  Check("minimax_m3", "]<]minimax[>[<tool ", "]<]minimax[>[<tool ");
}

TEST_CASE("k2_horizon: keys, values and types, or JSON, in groups that are whole") {
  const auto group = [](const std::string& body) {
    return "<ifm|tool_calls>" + body + "</ifm|tool_calls>";
  };
  const auto call = [](const std::string& body) {
    return "<ifm|tool_call>" + body + "</ifm|tool_call>";
  };
  const auto pair = [](const std::string& key, const std::string& value) {
    return "<ifm|arg_key>" + key + "</ifm|arg_key>\n<ifm|arg_value>" + value + "</ifm|arg_value>";
  };
  Check("k2_horizon",
        "Hm. " +
            group(call("weather\n" + pair("city", " a \"b\" ") + pair("days", " 3 ")) + "\n" +
                  call("now")) +
            " Done.",
        R"(Hm.  Done.|weather({"city":" a \"b\" ","days":3})|now({}))");
  Check("k2_horizon",
        group(call("weather<ifm|arg_key>other</ifm|arg_key><ifm|arg_type>integer</ifm|arg_type>"
                   "<ifm|arg_value>4</ifm|arg_value>")),
        R"(|weather({"other":4}))");
  Check("k2_horizon", group(call(R"({"name": "weather", "arguments": {"city": 3, "days": "4"}})")),
        R"(|weather({"city":"3","days":4}))");
  for (const std::string& text :
       {group(call("unknown")), group(call("weather" + pair("city", "a") + " b")), group("now"),
        group(""), std::string("<ifm|tool_calls><ifm|tool_call>now"),
        group(call("weather" + pair("city", "a") + pair("city", "b")))}) {
    Check("k2_horizon", text, text);
  }
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
