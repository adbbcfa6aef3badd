// A model's text in one of the formats of reasoning and calls: the same message however it is cut.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "common/utf8.h"
#include "frontend/parsers/message_parser.h"
#include "frontend/parsers/response_template.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

const ToolSet& Tools() {
  static const ToolSet tools(Json::parse(R"([{"type": "function", "function": {"name": "f",
    "parameters": {"type": "object", "properties": {"a": {"type": "string"},
    "n": {"type": ["integer", "null"]}, "o": {"type": "object"}}}}}])"));
  return tools;
}

// Formats that a checkpoint describes itself.
std::shared_ptr<const ResponseTemplate> Described(size_t which) {
  static const auto all = [] {
    std::vector<std::shared_ptr<const ResponseTemplate>> loaded;
    for (const char* json : {
             R"json({"start_anchor": "<a>", "fields": {
                 "thinking": {"open": "<think>", "close": ["</think>", "</think>\n\n"]},
                 "tool_calls": {"open": "<tool_call>", "close": "</tool_call>", "content": "json",
                   "transform": {"function": "{content}"}},
                 "content": {"close": "<|im_end|>"}}})json",
             R"json({"start_anchor": "<a>", "fields": {
                 "thinking": {"open_pattern": "\\s*<think>", "close": "</think><a>"},
                 "tool_calls": {"open_pattern": "<function=(?P<name>\\w+)>\\s*",
                   "close_pattern": "\\s*</function>|\\Z", "content": "xml-inline",
                   "content_args": {"tag_pattern": "<(?P<key>\\w+)>(?P<value>.*?)</\\1>",
                     "value_parser": {"name": "json", "args": {"allow_non_json": true}}},
                   "transform": {"function": {"name": "{name}", "arguments": "{content}"}}}}})json",
             R"json({"start_anchor": "<a>", "fields": {
                 "thinking": {},
                 "tool_calls": {"open": "[", "close_pattern": "\\](?=\\n|$)", "content": "json",
                   "content_args": {"unquoted_keys": true, "string_delims": [["<|\"|>", "<|\"|>"]]},
                   "transform": {"function": {"name": "{n}", "arguments": "{a}"}},
                   "transform_each": true}}})json"}) {
      auto parsed = ResponseTemplate::Parse(Json::parse(json));
      CHECK(parsed.ok()) << parsed.status().message();
      loaded.push_back(std::make_shared<const ResponseTemplate>(std::move(*parsed)));
    }
    return loaded;
  }();
  return all[which % all.size()];
}

// num_characters: of each piece.
std::string Sum(const MessageFormat& format, std::string_view text, size_t num_characters) {
  MessageParser parser(format);
  std::string reasoning, content, calls;
  int num_calls = 0;
  const auto add = [&](const ParsedDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      CHECK(call.index == num_calls || call.index + 1 == num_calls);
      if (call.index == num_calls) {
        ++num_calls;
        calls += "|" + call.name + "(";
      }
      calls += call.arguments;
    }
  };
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    for (size_t i = 0; i < num_characters && end < text.size(); ++i) NextUtf8(text, &end);
    add(parser.Feed(text.substr(begin, end - begin)));
  }
  add(parser.End());
  return reasoning + "|" + content + calls;
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  FuzzInput input(data, size);
  MessageFormat format;
  const auto tool_parsers = ToolParsers();
  const auto reasonings = ReasoningFormats();
  const size_t tool_parser = input.Below(tool_parsers.size() + 1);
  if (tool_parser < tool_parsers.size()) format.tool_parser = &tool_parsers[tool_parser];
  const size_t reasoning = input.Below(reasonings.size() + 2);
  if (reasoning < reasonings.size()) format.reasoning = &reasonings[reasoning];
  format.is_harmony = reasoning == reasonings.size();
  const size_t options = input.Below(256);
  format.start = static_cast<ReasoningStart>(options % 5);
  format.choice = static_cast<MessageFormat::Choice>(options / 5 % 4);
  format.parallel_calls = options % 3 != 0;
  format.tools = &Tools();
  format.named_tool = "f";
  const size_t described = input.Below(6);
  if (described > 2) {
    format.response_template = Described(described);
    format.prompt_part = input.Part();
  }
  // A detokenizer gives whole characters.
  std::string text;
  AppendLossyUtf8(input.Rest(), &text);
  const std::string whole = Sum(format, text, text.size() + 1);
  CHECK(Sum(format, text, 1) == whole);
  CHECK(Sum(format, text, 3) == whole);
  return 0;
}
