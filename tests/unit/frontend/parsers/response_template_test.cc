// Formats that a checkpoint describes itself: each text whole, and cut at every place.

#include "frontend/parsers/response_template.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "frontend/parsers/message_parser.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTags = R"({
  "version": 1, "defaults": {"role": "assistant"}, "start_anchor": "<|im_start|>assistant\n",
  "fields": {
    "thinking": {"open": "<think>", "close": "</think>"},
    "tool_calls": {"open": "<tool_call>", "close": "</tool_call>", "repeats": true,
      "content": "json", "transform": {"type": "function", "function": "{content}"}},
    "content": {"close": "<|im_end|>"}}})";

constexpr const char* kXml = R"({
  "start_anchor_pattern": "<\\|turn\\|>(assistant|model)\\n",
  "fields": {
    "thinking": {"open_pattern": "\\A\\s*<r>", "close": ["</r>", "</r>\n\n"]},
    "tool_calls": {"open_pattern": "<call:(?P<name>\\w+)>\\s*", "close_pattern": "\\s*</call>",
      "repeats": true, "content": "xml-inline",
      "content_args": {"tag_pattern": "<(?P<key>\\w+)>(?P<value>.*?)</\\1>",
                       "merge_duplicates": true},
      "transform": {"type": "function",
                    "function": {"name": "{name}", "arguments": "{content}"}}}}})";

constexpr const char* kMarkedStrings = R"json({
  "start_anchor": ["<a>", "<assistant>"],
  "fields": {
    "tool_calls": {"open": "[", "close_pattern": "\\](?=;|\\Z)", "content": "json",
      "content_args": {"unquoted_keys": true, "string_delims": [["<|\"|>", "<|\"|>"]]},
      "transform": {"function": {"name": "{content.n}", "arguments": "{content.a}"}}},
    "content": {"open": ":", "close": ";"}}})json";

struct Options {
  std::string prompt = {};
  bool reads_reasoning = true;
  bool reads_calls = true;
};

std::shared_ptr<const ResponseTemplate> Load(const char* json) {
  auto parsed = ResponseTemplate::Parse(Json::parse(json));
  REQUIRE(parsed.ok());
  return std::make_shared<const ResponseTemplate>(std::move(*parsed));
}

// "reasoning|content", then "|name(arguments)" for each call.
std::string Sum(const std::shared_ptr<const ResponseTemplate>& own,
                const std::vector<std::string_view>& pieces, const Options& options) {
  const ToolSet tools(Json::parse(R"([
      {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"s": {"type": "string"}, "n": {"type": ["integer", "null"]},
                       "all": {"type": "array"}}}}}])"));
  MessageFormat format;
  format.response_template = own;
  format.prompt_part = own->MessageIn(options.prompt);
  if (options.reads_reasoning) format.reasoning = FindReasoningFormat("hf");
  if (options.reads_calls) format.tool_parser = FindToolParser("beam");
  format.tools = &tools;
  MessageParser parser(format);
  std::string reasoning, content, calls;
  const auto add = [&](const ParsedDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      calls += "|" + call.name + "(" + call.arguments + ")";
    }
  };
  for (const std::string_view piece : pieces) add(parser.Feed(piece));
  add(parser.End());
  return reasoning + "|" + content + calls;
}

void Check(const char* json, std::string_view text, std::string_view expected,
           const Options& options = {}) {
  INFO(text);
  const auto own = Load(json);
  CHECK(Sum(own, {text}, options) == expected);
  std::vector<std::string_view> bytes;
  for (size_t cut = 0; cut < text.size(); ++cut) {
    REQUIRE(Sum(own, {text.substr(0, cut), text.substr(cut)}, options) == expected);
    bytes.push_back(text.substr(cut, 1));
  }
  CHECK(Sum(own, bytes, options) == expected);
}

TEST_CASE("a format that its checkpoint describes: thinking, content and calls between words") {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {"s": "a"}}</tool_call>)";
  Check(kTags, "<think>hm\n</think>\n\nHello é", "hm\n|\n\nHello é");
  Check(kTags, "Hello <b><|im_end|>" + call, R"(|Hello <b>|f({"s":"a"}))");
  Check(kTags, call + "\n" + call, R"(||f({"s":"a"})|f({"s":"a"}))");
  // A mark within a field is text; a call that cannot be read is dropped.
  Check(kTags, "<think><tool_call></think>a<tool_call>{]</tool_call>b", "<tool_call>|ab");
  Check(kTags, R"(<tool_call>{"name": "f"}</tool_call>x)", "|x");
  // The end of the text ends a call.
  Check(kTags, R"(<tool_call>{"name": "f", "arguments": {}})", "||f({})");
  Check(kTags, R"(<tool_call>{"name": "f", "argu)", "|");
  Check(kTags, "<think>hm", "hm|");
  Check(kTags, "a<thin", "|a<thin");
  Check(kTags, "", "|");
  // Parts that the server has no parser for are content.
  Check(kTags, "<think>hm</think>a" + call, "|hma" + call,
        {.reads_reasoning = false, .reads_calls = false});
}

TEST_CASE("a format that its checkpoint describes: what the prompt has of the message") {
  const std::string start = "<|im_start|>assistant\nold<|im_end|><|im_start|>assistant\n";
  Check(kTags, "hm</think>Hello", "hm|Hello", {.prompt = start + "<think>"});
  Check(kTags, "nk>hm</think>Hello", "hm|Hello", {.prompt = start + "<thi"});
  Check(kTags, "Hello", "|Hello", {.prompt = start + "<think>\n\n</think>\n\n"});
  Check(kTags, "lo", "|lo", {.prompt = start + "Hel"});
  Check(kTags, R"( "f", "arguments": {"n": "7"}}</tool_call>)", R"(||f({"n":7}))",
        {.prompt = start + R"(<tool_call>{"name":)"});
  Check(kTags, "", "|", {.prompt = start + R"(<tool_call>{"name": "f", "arguments": {}})"});
}

TEST_CASE("a format that its checkpoint describes: expressions, and arguments by their schema") {
  Check(kXml, "<r>hm</r>\n\n<call:f>\n<s>1</s><n>2</n><x>3</x></call>\n<call:g></call>",
        R"(hm||f({"s":"1","n":2,"x":"3"})|g({}))");
  Check(kXml, "<call:f><n>null</n><s>a\n<b></s><n>4</n><all>[1]</all></call> after <r>no</r>",
        R"(| after <r>no</r>|f({"n":[null,4],"s":"a\n<b>","all":[1]}))");
  Check(kXml, " \n<r>a", "a|");
  Check(kXml, "<r>a</r>\n", "a|\n");
  Check(kXml, "x<call:f", "|x<call:f");
  Check(kXml, "b</r>c", "b|c", {.prompt = "<|turn|>user\n<|turn|>model\n<r>"});
}

TEST_CASE("a format that its checkpoint describes: strings between other marks") {
  // What stands outside all fields is dropped where none of them is of that.
  Check(kMarkedStrings, R"(x:one;y[{n:<|"|>f<|"|>,a:{s:<|"|>q"\<|"|>,n:[1,{k:2}]}}];:two)",
        R"(|onetwo|f({"s":"q\"\\","n":[1,{"k":2}]}))");
  Check(kMarkedStrings, R"([{n:<|"|>f<|"|>,a:<|"|>raw<|"|>}])", "||f(raw)");
}

TEST_CASE("a closing mark that ends with the start of the next message may lack that") {
  const char* const turns = R"({"start_anchor": "<|bot|>", "fields": {
      "content": {"open": ">", "close": "<|eot|><|bot|>"}}})";
  Check(turns, ">Hello<|eot|>", "|Hello");
  Check(turns, ">Hello<|eot|><|bot|>>x", "|Hellox");
  Check(turns, ">Hello<|eo", "|Hello<|eo");
}

TEST_CASE("hostile expressions end a message's parsing, not the server") {
  const char* const slow = R"({"start_anchor": "<a>", "fields": {
      "thinking": {"open_pattern": "(a|aa|a?)+(a*)*$x", "close": "b"}, "content": {}}})";
  const std::string text(4000, 'a');
  CHECK(Sum(Load(slow), {text, text}, {}) == "|" + text + text);
  // Marks that are empty and come for ever at one place.
  const char* const empty = R"json({"start_anchor": "<a>", "fields": {
      "thinking": {"open_pattern": "(?=x)", "close_pattern": "(?=x)"}, "content": {}}})json";
  Check(empty, "yxz", "|yxz");
  const char* const greedy = R"({"start_anchor": "<a>", "fields": {
      "thinking": {"open_pattern": ".*<x>", "close": "b"}, "content": {}}})";
  Check(greedy, "one<x>two<x>three", "three|");
  CHECK(Sum(Load(greedy), std::vector<std::string_view>(20'000, "a"), {}).size() == 20'001);
}

TEST_CASE("a text with NUL ends where a format of reasoning has no marks") {
  MessageFormat format;
  format.reasoning = FindReasoningFormat("hf");
  format.tool_parser = FindToolParser("jamba");
  format.choice = MessageFormat::Choice::kRequired;  // JSON, after reasoning by its marks
  format.start = ReasoningStart::kReasoning;
  MessageParser parser(format);
  ParsedDelta delta = parser.Feed(std::string_view("a\0b", 3));
  CHECK(delta.content + parser.End().content == std::string("a\0b", 3));
}

TEST_CASE("a description that is wrong is refused with the key") {
  const auto refusal = [](const char* fields) {
    const auto parsed = ResponseTemplate::Parse(
        Json::parse(std::string(R"({"start_anchor": "<a>", "fields": )") + fields + "}"));
    return parsed.ok() ? "" : parsed.status().message();
  };
  const auto has = [](const std::string& message, const char* part) {
    INFO(message);
    return message.find(part) != std::string::npos;
  };
  CHECK(refusal(R"({"content": {}})").empty());
  CHECK(has(refusal(R"({})"), "fields must be an object that is not empty"));
  CHECK(has(refusal(R"({"images": {}})"), "key that is not known: images"));
  CHECK(has(refusal(R"({"content": {}, "thinking": {}})"), "more than one without open"));
  CHECK(has(refusal(R"({"content": {"open": ""}})"), "fields.content open must be a text"));
  CHECK(has(refusal(R"({"content": {"open": "a", "open_pattern": "b"}})"), "has both open"));
  CHECK(has(refusal(R"({"content": {"open_pattern": "("}})"), "missing closing parenthesis"));
  CHECK(has(refusal(R"({"content": {"content": "json"}})"), "it is streamed as it comes"));
  CHECK(has(refusal(R"({"tool_calls": {"open": "a", "content": "yaml"}})"), "known: text, int"));
  CHECK(has(refusal(R"({"tool_calls": {"open": "a", "transform": "x{content}"}})"), "mixes"));
  CHECK(has(refusal(R"j({"tool_calls": {"open_pattern": "(?P<name>a)"}})j"), "named groups"));
  CHECK(has(refusal(R"({"tool_calls": {"open": "a", "content": "xml-inline"}})"), "tag_pattern"));
  CHECK(!ResponseTemplate::Parse(Json::parse(R"({"fields": {"content": {}}})")).ok());
  CHECK(!ResponseTemplate::Parse(Json::parse("[]")).ok());
}

}  // namespace
}  // namespace tandem
