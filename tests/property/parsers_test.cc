// Random text made of the formats' own markers: whatever it is, every cutting gives the same
// message, no byte is lost to a crash, and each piece is whole UTF-8.

#include <cstdint>
#include <iostream>
#include <random>

#include "common/strings.h"
#include "frontend/parsers/message_parser.h"
#include "tests/support/environment.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

const std::vector<std::string> kPieces = {"<tool_call>",
                                          "</tool_call>",
                                          "<think>",
                                          "</think>",
                                          "{\"name\": \"f\", \"arguments\": ",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          "\"",
                                          "\\",
                                          ":",
                                          ",",
                                          " ",
                                          "\n",
                                          "a",
                                          "f(x=1)",
                                          "é",
                                          "🎈",
                                          "｜",
                                          "\"name\"",
                                          "[TOOL_CALLS]",
                                          "[ARGS]",
                                          "[THINK]",
                                          "[/THINK]",
                                          "<function=f>",
                                          "<parameter=x>",
                                          "</parameter>",
                                          "</function>",
                                          "<|channel|>",
                                          "<|message|>",
                                          "<|end|>",
                                          "to=functions.f",
                                          "<｜tool▁calls▁begin｜>",
                                          "<｜tool▁call▁begin｜>",
                                          "<｜tool▁sep｜>",
                                          "<｜tool▁call▁end｜>",
                                          "<|tool_calls_section_begin|>",
                                          "<|tool_call_begin|>",
                                          "functions.f:0",
                                          "<|tool_call_argument_begin|>",
                                          "<|tool_call_end|>",
                                          "<arg_key>",
                                          "</arg_key>",
                                          "<arg_value>",
                                          "</arg_value>",
                                          "<minimax:tool_call>",
                                          "<invoke name=\"f\">",
                                          "<parameter name=\"x\">",
                                          "</invoke>",
                                          "<｜DSML｜tool_calls>",
                                          "<｜DSML｜invoke name=\"f\">",
                                          "functools[",
                                          "<|tool_call|>",
                                          "<tool_calls>",
                                          "<tool_calls:s>",
                                          "<tool_call:s>",
                                          "<tool_sep>",
                                          "<arg_key:s>",
                                          "</arg_key:s>",
                                          "<arg_value:s>",
                                          "</arg_value:s>",
                                          "</tool_calls>",
                                          "<function_calls>",
                                          "</function_calls>",
                                          "<|tool_call>",
                                          "call:f{",
                                          "<|\"|>",
                                          "<tool_call|>",
                                          "```json",
                                          "; ",
                                          "<|python_tag|>",
                                          "<|tool_call_start|>",
                                          "[f(x=1)]",
                                          "<|tool_call_end|>",
                                          "<|tools_prefix|>",
                                          "{\"f\": ",
                                          "<|tools_suffix|>",
                                          "<function_call>",
                                          "<start_function_call>",
                                          "<escape>",
                                          "<end_function_call>",
                                          "function call<|role_sep|>\n",
                                          "<|message_sep|>",
                                          "<|function_call|>",
                                          "<function name=\"f\">",
                                          "<param name=\"x\">",
                                          "</param>",
                                          "<![CDATA[",
                                          "<answer>",
                                          "</answer>",
                                          "<dots_function_call>",
                                          "<invoke name=f>",
                                          "</dots_function_call>",
                                          "]<]minimax[>[<tool_call>",
                                          "]<]minimax[>[<invoke name=\"f\">",
                                          "]<]minimax[>[</invoke>",
                                          "]<]minimax[>[<x>",
                                          "]<]minimax[>[</x>",
                                          "<mm:think>",
                                          "</mm:think>",
                                          "<|plamo:begin_tool_requests:plamo|>",
                                          "<|plamo:begin_tool_name:plamo|>f",
                                          "<|plamo:end_tool_name:plamo|>",
                                          "<|plamo:msg|>",
                                          "<|plamo:end_tool_arguments:plamo|>",
                                          "<|plamo:end_tool_requests:plamo|>",
                                          "<|plamo:begin_think:plamo|>",
                                          "<|plamo:end_think:plamo|>",
                                          "<ifm|think_fast>",
                                          "</ifm|think_fast>",
                                          "<ifm|tool_calls>",
                                          "<ifm|tool_call>f",
                                          "<ifm|arg_key>x</ifm|arg_key>",
                                          "<ifm|arg_value>",
                                          "</ifm|arg_value>",
                                          "</ifm|tool_call>",
                                          "</ifm|tool_calls>",
                                          "<|open|>",
                                          "<|close|>",
                                          "<|sep|>",
                                          "think<|sep|>",
                                          "response<|sep|>",
                                          "tools<|sep|>",
                                          "call tool=\"f\"<|sep|>",
                                          "argument key=\"x\" type=\"string\"<|sep|>",
                                          "argument<|sep|>",
                                          "<|start|>",
                                          "assistant",
                                          " to=self",
                                          " to=user",
                                          " to=f",
                                          "<|eom|>",
                                          "<|eot|>",
                                          "<atem:invoke name=\"f\">",
                                          "<atem:parameter name=\"x\">",
                                          "</atem:parameter>",
                                          "</atem:invoke>",
                                          "<|message_model|>",
                                          "<|content_text|>",
                                          "<|content_thinking|>",
                                          "<|content_invoke_tool_json|>",
                                          "<|end_message|>",
                                          "{\"name\": \"f\", \"args\": ",
                                          "<|START_THINKING|>",
                                          "<|END_THINKING|>",
                                          "<|START_RESPONSE|>",
                                          "<|END_RESPONSE|>",
                                          "<|START_ACTION|>",
                                          "<|END_ACTION|>",
                                          "{\"tool_call_id\": \"0\", \"tool_name\": \"f\", ",
                                          "\"parameters\": ",
                                          "<co>",
                                          "</co: 0:[1]>",
                                          "\xef\xbf\xbd",
                                          "null",
                                          "1.5",
                                          "<"};

std::string Sum(const MessageFormat& format, const std::vector<std::string>& pieces) {
  MessageParser parser(format);
  std::string reasoning, content, order;
  std::vector<ToolCallDelta> calls;
  const auto come = [&order](char kind) {
    if (order.empty() || order.back() != kind) order += kind;
  };
  const auto add = [&](ParsedDelta delta) {
    delta.ForEach([&](std::string_view) { come('r'); }, [&](std::string_view) { come('c'); },
                  [&](const ToolCallDelta& call) {
                    if (!call.name.empty()) order += 'x';  // calls do not merge
                  });
    CHECK(FindInvalidUtf8(delta.content) == std::string::npos);
    CHECK(FindInvalidUtf8(delta.reasoning) == std::string::npos);
    reasoning += delta.reasoning;
    content += delta.content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      CHECK(FindInvalidUtf8(call.arguments) == std::string::npos);
      REQUIRE(call.index <= static_cast<int>(calls.size()));
      if (call.index == static_cast<int>(calls.size())) {
        calls.push_back(call);
      } else {
        REQUIRE(call.index + 1 == static_cast<int>(calls.size()));
        calls.back().arguments += call.arguments;
      }
    }
  };
  for (const std::string& piece : pieces) add(parser.Feed(piece));
  add(parser.End());
  std::string sum = order + "|" + reasoning + "|" + content;
  for (const ToolCallDelta& call : calls) sum += "|" + call.name + "(" + call.arguments + ")";
  return sum;
}

// TANDEM_SEED repeats a run, TANDEM_CASES sets its length.
TEST_CASE("parsers: random markers give one message under every cutting") {
  const auto seed = static_cast<unsigned>(FromEnvironment("TANDEM_SEED", std::random_device()()));
  const uint64_t num_cases = FromEnvironment("TANDEM_CASES", 3000);
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  std::vector<const ReasoningFormat*> reasonings = {nullptr};
  for (const ReasoningFormat& format : ReasoningFormats()) reasonings.push_back(&format);
  const ToolSet tools;
  for (uint64_t round = 0; round < num_cases; ++round) {
    MessageFormat format;
    const auto parsers = ToolParsers();
    format.tool_parser = &parsers[random() % parsers.size()];
    format.tools = &tools;
    format.reasoning = reasonings[random() % reasonings.size()];
    format.start = static_cast<ReasoningStart>(random() % 5);
    format.choice = static_cast<MessageFormat::Choice>(random() % 4);
    format.named_tool = "f";
    format.parallel_calls = random() % 4 != 0;
    std::vector<std::string> pieces;
    std::string whole;
    for (size_t n = random() % 24; n > 0; --n) {
      pieces.push_back(kPieces[random() % kPieces.size()]);
      whole += pieces.back();
    }
    INFO("seed " << seed << " round " << round << " " << format.tool_parser->name << " "
                 << (format.reasoning ? format.reasoning->name : "none") << ": " << whole);
    REQUIRE(Sum(format, pieces) == Sum(format, {whole}));
  }
}

TEST_CASE("parsers: a long run of one letter or of openings ends") {
  for (const ToolParserRow& row : ToolParsers()) {
    const ToolSet tools;
    for (const char* unit : {"a", "<", "{", "[", "{\"a\":", "\n"}) {
      MessageFormat format;
      format.tool_parser = &row;
      format.tools = &tools;
      std::string text;
      while (text.size() < 100'000) text += unit;
      INFO(row.name << " " << unit);
      CHECK(Sum(format, {text}).size() >= 1);
    }
  }
}

}  // namespace
}  // namespace tandem
