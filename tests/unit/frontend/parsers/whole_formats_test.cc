// Formats whose messages have parts for reasoning, content and calls: cases by hand, each text
// whole and cut at every place.

#include <nlohmann/json.hpp>

#include "frontend/parsers/message_parser.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ReasoningStart start = ReasoningStart::kUnknown;
  bool has_tools = true;
};

// "reasoning|content", then "|name(arguments)" for each call.
std::string Sum(const char* name, const std::vector<std::string_view>& pieces, Options options) {
  const ToolSet tools(Json::parse(R"([
      {"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
      {"type": "function", "function": {"name": "now"}}])"));
  MessageFormat format;
  format.reasoning = FindReasoningFormat(name);
  REQUIRE(format.reasoning != nullptr);
  format.start = options.start;
  if (options.has_tools) format.tool_parser = FindToolParser(name);
  if (options.has_tools) REQUIRE(format.tool_parser != nullptr);
  format.tools = &tools;
  MessageParser parser(format);
  std::string reasoning, content;
  std::vector<ToolCallDelta> calls;
  const auto add = [&](const ParsedDelta& delta) {
    reasoning += delta.reasoning;
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
  std::string sum = reasoning + "|" + content;
  for (const ToolCallDelta& call : calls) sum += "|" + call.name + "(" + call.arguments + ")";
  return sum;
}

void Check(const char* name, std::string_view text, std::string_view expected,
           Options options = {}) {
  INFO(name << ": " << text);
  CHECK(Sum(name, {text}, options) == expected);
  for (size_t cut = 1; cut < text.size(); ++cut) {
    REQUIRE(Sum(name, {text.substr(0, cut), text.substr(cut)}, options) == expected);
  }
}

TEST_CASE("kimi_k3: channels between three tokens") {
  const std::string think = "<|open|>think<|sep|>hm\n<|close|>think<|sep|>";
  const std::string response = "<|open|>response<|sep|>Hello <b>|<|close|>response<|sep|>";
  const std::string tools =
      "<|open|>tools<|sep|><|open|>call tool=\"weather\" index=\"1\"<|sep|>"
      "<|open|>argument key=\"city\" type=\"string\"<|sep|>a \"b\"\n<|close|>argument<|sep|>"
      "<|open|>argument key=\"days\" type=\"number\"<|sep|>3<|close|>argument<|sep|>"
      "<|close|>call<|sep|><|open|>call tool=\"now\" index=\"2\"<|sep|><|close|>call<|sep|>"
      "<|close|>tools<|sep|>";
  const std::string end = "<|close|>message<|sep|>";
  const std::string calls = R"(|weather({"city": "a \"b\"\n", "days": 3})|now({}))";
  Check("kimi_k3", think + response + end, "hm\n|Hello <b>|");
  Check("kimi_k3", think + response + tools + end, "hm\n|Hello <b>|" + calls);
  // The prompt has opened the thoughts, closed them, or opened the response.
  Check("kimi_k3", think.substr(20) + response + end, "hm\n|Hello <b>|",
        {.start = ReasoningStart::kReasoning});
  Check("kimi_k3", "Hello<|close|>response<|sep|>" + tools, "|Hello" + calls,
        {.start = ReasoningStart::kContent});
  Check("kimi_k3", response, "|Hello <b>|", {.start = ReasoningStart::kOff});
  // Without tools calls are dropped, channels are not shown.
  Check("kimi_k3", think + response + tools + end, "hm\n|Hello <b>|", {.has_tools = false});
  Check("kimi_k3", tools.substr(0, tools.find("\"b")), R"(||weather({"city": "a ))");
  Check("kimi_k3", tools.substr(0, tools.find("3<")), R"(||weather({"city": "a \"b\"\n"}))");
  Check("kimi_k3",
        "<|open|>tools<|sep|><|open|>call tool=\"now\" index=\"1\"<|sep|><|open|>argument "
        "key=\"a&quot;&amp;quot;\" type=\"object\"<|sep|>{\"b\": 1<|close|>argument<|sep|>"
        "<|close|>call<|sep|>",
        R"(||now({"a\"&quot;": "{\"b\": 1"}))");
}

TEST_CASE("cohere_command3 and 4: parts between tokens") {
  const std::string think = "<|START_THINKING|>I think so.<|END_THINKING|>";
  const std::string call =
      "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", "
      "\"parameters\": {\"city\": \"Oslo\", \"days\": 3}},\n    {\"tool_call_id\": \"1\", "
      "\"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>";
  for (const char* name : {"cohere_command3", "cohere_command4"}) {
    Check(name, think + "<|START_RESPONSE|>Hello there\n<|END_RESPONSE|>",
          "I think so.|Hello there");
    Check(name, think + call, R"(I think so.||weather({"city": "Oslo", "days": 3})|now({}))");
    Check(name, think + "<|START_RESPONSE|>Let me<|END_RESPONSE|>" + call,
          R"(I think so.|Let me|weather({"city": "Oslo", "days": 3})|now({}))");
    Check(name, think + call.substr(0, call.find("slo")), R"(I think so.||weather({"city": "O))");
    Check(name, "<|START_RESPONSE|>  a <co>b</co: 0:[0]> c </co> <co<|END_RESPONSE|>  ",
          "|  a b c </co> <co");
    Check(name, think + call, "I think so.|", {.has_tools = false});
    Check(name, "Hello", "|Hello", {.start = ReasoningStart::kContent});
  }
  Check("cohere_command3", "Hello", "|Hello");
  Check("cohere_command4", "Hello<|END_THINKING|><|START_TEXT|>there<|END_TEXT|>", "Hello|there");
}

TEST_CASE("inkling: blocks with a token for their kind") {
  const std::string think = "<|content_thinking|>hm \n<|end_message|>";
  const std::string text = "<|message_model|><|content_text|>Hello.<|end_message|>";
  const std::string call =
      "<|message_model|>weather<|content_invoke_tool_json|>{\"name\": \"weather\", \"args\": "
      "{\"city\": \"Oslo\"}}<|end_message|>";
  Check("inkling", think + text, "hm|Hello.");
  Check("inkling", think + text + call + "<|content_model_end_sampling|>",
        R"(hm|Hello.|weather({"city": "Oslo"}))");
  Check("inkling", call + text, R"(|Hello.|weather({"city": "Oslo"}))");
  Check("inkling", "now<|content_invoke_tool_json|>{\"name\":\"now\"}<|end_message|>", "||now({})");
  Check("inkling", "hm<|end_message|>" + text, "hm|Hello.", {.start = ReasoningStart::kReasoning});
  Check("inkling", "{\"a\": 1}", "|{\"a\": 1}");
  Check("inkling", "Hello", "|Hello");
  Check("inkling", think + text + call, "hm|Hello.", {.has_tools = false});
  Check("inkling", call.substr(0, call.find("slo")), R"(||weather({"city": "O))");
}

TEST_CASE("muse: messages with a recipient") {
  const std::string think =
      " to=self<|message|>I call <atem:invoke name=\"now\"></atem:invoke>.<|eom|>";
  const std::string call =
      "<|start|>assistant to=weather.weather<|message|><atem:function_calls>\n"
      "<atem:invoke name=\"weather.weather\">\n<atem:parameter name=\"city\">3</atem:parameter>\n"
      "<atem:parameter name=\"days\">3</atem:parameter>\n</atem:invoke>\n"
      "<atem:invoke name=\"now\"></atem:invoke>\n</atem:function_calls><|eom|>";
  const std::string answer = "<|start|>assistant to=user<|message|>Hello to=all <b<|eot|>";
  const std::string thought = "I call <atem:invoke name=\"now\"></atem:invoke>.|";
  for (const char* name : {"muse", "musespark1x", "muse_glimmer"}) {
    const std::string city = name == std::string("muse_glimmer") ? "3" : "\"3\"";
    const std::string calls = "|weather({\"city\": " + city + ", \"days\": 3})|now({})";
    Check(name, think + answer, thought + "Hello to=all <b");
    Check(name, think + call, thought + calls);
    Check(name, think + call + answer, thought + "Hello to=all <b" + calls);
    Check(name, think + call, thought, {.has_tools = false});
    // The end of a message may be missing.
    Check(name, " to=self<|message|>hm to=now<|message|><atem:invoke name=\"now\"></atem:invoke>",
          "hm||now({})");
    Check(name, "Hello <|x", "|Hello <|x");
    Check(name, call.substr(0, call.find("3</")), "|");
  }
  Check("muse",
        "<|message|>hm<|eom|><|start|>assistant to=commentary<|message|>a<|eom|>"
        "<|start|>assistant to=developer<|message|>b<|eom|>",
        "hm|a");
  Check("muse_glimmer", "<|message|>hm<|eom|>", "|hm");
}

TEST_CASE("k2_horizon, minimax_m3 and plamo3 think between markers of their own") {
  for (const char* effort : {"", "_fast", "_faster"}) {
    const std::string begin = "<ifm|think" + std::string(effort) + ">";
    const std::string end = "</ifm|think" + std::string(effort) + ">";
    Check("k2_horizon", begin + "hm" + end + "Hello", "hm|Hello");
    Check("k2_horizon", "hm" + end + "Hello", "hm|Hello");
    Check("k2_horizon", "hm<ifm|tool_calls><ifm|tool_call>now</ifm|tool_call></ifm|tool_calls>",
          "hm||now({})");
    const ReasoningFormat& format = *FindReasoningFormat("k2_horizon");
    CHECK(ReasoningStartAfter(format, "a" + begin, Json()) == ReasoningStart::kReasoning);
    CHECK(ReasoningStartAfter(format, begin + end, Json()) == ReasoningStart::kContent);
  }
  Check("minimax_m3", "a<mm:think>hm</mm:think>Hello", "hm|aHello");
  Check("minimax_m3", "</mm:think>Hello", "|Hello");
  Check("minimax_m3", "hm</mm:think>Hello", "hm|Hello", {.start = ReasoningStart::kReasoning});
  Check("plamo3", "<|plamo:begin_think:plamo|>hm<|plamo:end_think:plamo|>Hello", "hm|Hello");
  Check("plamo3",
        "hm<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_name:plamo|>now"
        "<|plamo:end_tool_name:plamo|><|plamo:end_tool_requests:plamo|>",
        "hm||now({})");
}

TEST_CASE("calls that a grammar has made JSON are read in every such format") {
  for (const char* name : {"kimi_k3", "cohere_command4", "inkling", "muse", "minimax_m3"}) {
    INFO(name);
    const ToolSet tools;
    MessageFormat format;
    format.reasoning = FindReasoningFormat(name);
    format.start = ReasoningStart::kContent;
    format.tool_parser = FindToolParser(name);
    format.tools = &tools;
    format.choice = MessageFormat::Choice::kRequired;
    MessageParser parser(format);
    std::string sum;
    const auto add = [&](const ParsedDelta& delta) {
      sum += delta.content;
      for (const ToolCallDelta& call : delta.tool_calls) sum += call.name + call.arguments;
    };
    add(parser.Feed(R"([{"name": "now", "parameters": {}}])"));
    add(parser.End());
    CHECK(sum == "now{}");
  }
}

}  // namespace
}  // namespace tandem
