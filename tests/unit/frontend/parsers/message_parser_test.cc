#include "frontend/parsers/message_parser.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("gpt-oss' analysis is reasoning while it lasts") {
  MessageFormat format;
  format.is_harmony = true;
  format.choice = MessageFormat::Choice::kNone;
  MessageParser parser(format);
  std::string reasoning, content;
  const auto feed = [&](std::string_view text) {
    const ParsedDelta delta = parser.Feed(text);
    reasoning += delta.reasoning;
    content += delta.content;
    return parser.in_reasoning();
  };
  CHECK(!feed("<|channel|>"));
  CHECK(!feed("analysis"));
  CHECK(feed("<|message|>"));
  CHECK(feed("One, "));
  CHECK(feed("two"));
  CHECK(!feed("<|end|>"));
  CHECK(!feed("<|start|>assistant<|channel|>final"));
  CHECK(!feed("<|message|>"));
  CHECK(!feed("Three"));
  parser.End();
  CHECK(reasoning == "One, two");
  CHECK(content == "Three");
}

TEST_CASE("gpt-oss: each message to a function is a call, however the text is cut") {
  const ToolParserRow* const row = FindToolParser("openai");
  const std::string start = "<|start|>assistant";
  const auto message = [](const std::string& to, const std::string& text) {
    return "<|channel|>commentary" + to + " <|constrain|>json<|message|>" + text + "<|call|>";
  };
  const std::string text =
      "<|channel|>analysis<|message|>hm<|end|>" + start + message(" to=functions.a", "{\"x\": 1}") +
      start + message(" to=functions.a", "{}") + start + message(" to=b.c", "[") + start +
      " to=functions.d<|channel|>commentary json<|message|>{}<|end|>" + start +
      message(" to=python", "print") + start + message(" to=browser.search", "{}") + start +
      "<|channel|>analysis to=container.exec<|message|>ls<|end|>" + start +
      "<|channel|>final<|message|>done<|return|>";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    MessageFormat format;
    format.is_harmony = true;
    format.tool_parser = row;
    MessageParser parser(format);
    std::string sum;
    std::vector<ToolCallDelta> calls;
    const auto add = [&](const ParsedDelta& delta) {
      sum += delta.reasoning + delta.content;
      for (const ToolCallDelta& call : delta.tool_calls) {
        if (call.index == static_cast<int>(calls.size()))
          calls.push_back(call);
        else
          calls.back().arguments += call.arguments;
      }
    };
    add(parser.Feed(std::string_view(text).substr(0, cut)));
    add(parser.Feed(std::string_view(text).substr(cut)));
    add(parser.End());
    for (const ToolCallDelta& call : calls) sum += "|" + call.name + "(" + call.arguments + ")";
    // A call to a tool of the server is shown on the channel analysis only.
    REQUIRE(sum == "hmlsdone|a({\"x\": 1})|a({})|b.c([)|d({})");
  }
}

TEST_CASE("a text decides by its first marker whether it begins with reasoning") {
  const auto parse = [](const char* format_name, std::string_view text) {
    MessageFormat format;
    format.reasoning = FindReasoningFormat(format_name);
    format.start = ReasoningStart::kByText;
    MessageParser parser(format);
    std::string reasoning, content;
    const auto add = [&](const ParsedDelta& delta) {
      reasoning += delta.reasoning;
      content += delta.content;
    };
    for (const char byte : text) add(parser.Feed(std::string_view(&byte, 1)));
    add(parser.End());
    return reasoning + "|" + content;
  };
  for (const char* name : {"deepseek_r1", "qwen3", "olmo3"}) {
    CHECK(parse(name, "Hello") == "|Hello");
    CHECK(parse(name, "<think>hm</think>Hello") == "hm|Hello");
    CHECK(parse(name, " \n<think>hm</think>Hello") == "hm|Hello");
    CHECK(parse(name, "  <thin") == "|  <thin");
    CHECK(parse(name, "a </think> b") == "|a </think> b");
    CHECK(parse(name, "<think>hm") == "hm|");
  }
  CHECK(parse("step3", "Hello</think>") == "|Hello</think>");
  CHECK(parse("granite", "Here is my thought process:") == "|Here is my thought process:");
}

TEST_CASE("hunyuan_a13b: thoughts and an answer between marks, however the text is cut") {
  const auto parse = [](std::string_view text) {
    std::string sums;
    for (size_t cut = 0; cut < text.size(); ++cut) {
      MessageFormat format;
      format.reasoning = FindReasoningFormat("hunyuan_a13b");
      MessageParser parser(format);
      std::string reasoning, content;
      const auto add = [&](const ParsedDelta& delta) {
        reasoning += delta.reasoning;
        content += delta.content;
      };
      add(parser.Feed(text.substr(0, cut)));
      add(parser.Feed(text.substr(cut)));
      add(parser.End());
      const std::string sum = reasoning + "|" + content;
      if (!sums.empty()) CHECK(sums == sum);
      sums = sum;
    }
    return sums;
  };
  CHECK(parse("<think>\nOne.\n\nTwo.\n</think>\n<answer>\nYes.\nNo.\n</answer>") ==
        "One.\n\nTwo.|Yes.\nNo.");
  CHECK(parse("<think>\n\n</think>\n<answer>\nYes.\n</answer>") == "|Yes.");
  CHECK(parse("<answer>Yes.</answer>") == "|Yes.");
  CHECK(parse("<think>\nhm\n</think>\n<tool_calls>[]</tool_calls>") ==
        "hm|<tool_calls>[]</tool_calls>");
  CHECK(parse("<think>\nhm\n</thin") == "hm\n</thin|");
  CHECK(parse("<answer>\nYes\n</ans") == "|Yes\n</ans");
  CHECK(parse("Yes <think>no</think>") == "|Yes <think>no</think>");
}

TEST_CASE("reasoning that may be content waits for content or a call") {
  MessageFormat format;
  format.reasoning = FindReasoningFormat("nemotron_v3");
  format.tool_parser = FindToolParser("hermes");
  format.reasoning_may_be_content = true;
  const auto parse = [&](std::string_view text) {
    std::string sums;
    for (const size_t step : {size_t{1}, text.size()}) {
      MessageParser parser(format);
      std::string reasoning, content, calls;
      const auto add = [&](const ParsedDelta& delta) {
        reasoning += delta.reasoning;
        content += delta.content;
        for (const ToolCallDelta& call : delta.tool_calls) calls += call.name;
      };
      for (size_t i = 0; i < text.size(); i += step) add(parser.Feed(text.substr(i, step)));
      add(parser.End());
      const std::string sum = reasoning + "|" + content + "|" + calls;
      if (!sums.empty()) CHECK(sums == sum);
      sums = sum;
    }
    return sums;
  };
  CHECK(parse("<think>hm</think>yes") == "hm|yes|");
  CHECK(parse("<think>hm</think>") == "|hm|");
  CHECK(parse("<think>hm</think>\n\n") == "|hm|");
  CHECK(parse("<think>hm") == "|hm|");
  CHECK(parse("<think></think>\n") == "|\n|");
  CHECK(parse("<think>hm</think><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>") ==
        "hm||f");
}

TEST_CASE("Granite's thoughts are reasoning while they last") {
  MessageFormat format;
  format.reasoning = FindReasoningFormat("granite");
  MessageParser parser(format);
  CHECK(parser.Feed("Here is my thought process:").empty());
  CHECK(parser.in_reasoning());
  CHECK(parser.Feed(" hm").reasoning == " hm");
  CHECK(parser.Feed("Here is my response:").empty());
  CHECK_FALSE(parser.in_reasoning());
}

}  // namespace
}  // namespace tandem
