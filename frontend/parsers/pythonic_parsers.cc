// Calls as Python: all of a list counts, or none of it.

#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/python_literal.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

void AddCalls(const std::vector<PythonCall>& calls, MessageSink* sink) {
  for (const PythonCall& call : calls) sink->AddCall(call.name, call.arguments);
}

// Whether the text goes on as "[name": else it is prose, which need not wait for the end.
Parse<bool> BeginsAsList(TextSource& text) {
  size_t offset = co_await ScanBlanks(text, 0);
  if (co_await text.Peek(offset) != '[') co_return false;
  offset = co_await ScanBlanks(text, offset + 1);
  const int byte = co_await text.Peek(offset);
  co_return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

Parse<> ParseWholeList(ToolParserInput in) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  if (co_await BeginsAsList(in.text)) {
    const TextUntil whole = co_await TakeUntil(in.text, AnyOf("<|python_end|>"));
    if (const auto calls = ParsePythonCallList(whole.text)) {
      AddCalls(*calls, &in.sink);
    } else {
      in.sink.AddContent(whole.text);
    }
  }
  co_await CopyRest(in.text, add_content);
}

}  // namespace

// [N(k='v', k2=3), M()] as the whole text.
Parse<> ParsePythonic(ToolParserInput in) { return ParseWholeList(in); }

// The same, which may stand in <|python_start|>…<|python_end|>.
Parse<> ParseLlama4Pythonic(ToolParserInput in) {
  co_await in.text.TrySkip("<|python_start|>");
  co_await ParseWholeList(in);
}

namespace {

struct PythonBlock {
  std::string_view open;
  std::string_view close;
  std::optional<std::vector<PythonCall>> (*parse)(std::string_view text);
  bool needs_close = false;
};

// A block that is no calls is content.
Parse<> ParseBlocks(ToolParserInput in, PythonBlock format) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  while (co_await CopyUntil(in.text, AnyOf(format.open), add_content) != kNoMarker) {
    const TextUntil block = co_await TakeUntil(in.text, AnyOf(format.close));
    const bool is_closed = block.marker != kNoMarker;
    const auto calls = format.parse(block.text);
    if (calls && (is_closed || !format.needs_close)) {
      AddCalls(*calls, &in.sink);
      continue;
    }
    in.sink.AddContent(format.open);
    in.sink.AddContent(block.text);
    if (is_closed) in.sink.AddContent(format.close);
  }
}

}  // namespace

// <function_calls>\nN(k='v')\nM()\n</function_calls>
Parse<> ParseOlmo3(ToolParserInput in) {
  return ParseBlocks(in, {.open = "<function_calls>",
                          .close = "</function_calls>",
                          .parse = &ParsePythonCallLines,
                          .needs_close = true});
}

// <|tool_call_start|>[N(k='v'), M()]<|tool_call_end|>; the end may be missing.
Parse<> ParseLfm2(ToolParserInput in) {
  return ParseBlocks(
      in,
      {.open = "<|tool_call_start|>", .close = "<|tool_call_end|>", .parse = &ParsePythonCallList});
}

}  // namespace tandem
