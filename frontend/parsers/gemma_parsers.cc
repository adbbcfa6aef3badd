// Calls as a name and an object whose texts stand between quotes that are tokens of their own:
// call:N{k:"text",k2:3,k3:[…],k4:{…}}, any number.

#include <vector>

#include "common/strings.h"
#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

struct GemmaFormat {
  std::string_view open;
  std::string_view close;
  std::string_view quote;
  bool quotes_all = false;  // numbers too: the tool's schema decides what a value is
};

// After the first '{': writes the object as JSON while it comes. What is open when the text ends is
// closed, but for a text that has no end.
Parse<> CopyArguments(ToolParserInput in, GemmaFormat format, std::string tool) {
  std::vector<char> open = {'}'};
  std::string key;  // of the value to come
  std::string separator;
  in.sink.AddArguments("{");
  const auto add_value = [&](std::string_view value) {
    in.sink.AddArguments(separator);
    if (!key.empty()) in.sink.AddArguments(QuoteJson(key) + ": ");
    in.sink.AddArguments(value);
    key.clear();
  };
  enum Stop { kQuote, kClose, kObject, kList, kObjectEnd, kListEnd, kComma, kColon };
  const Markers stops = {format.quote, format.close, "{", "[", "}", "]", ",", ":"};
  bool ended = false;
  while (!open.empty() && !ended) {
    const TextUntil part = co_await TakeUntil(in.text, stops);
    const std::string_view bare = StripAscii(part.text);
    if (part.marker == kColon) {
      key = bare;
      continue;
    }
    // A value after its last byte: a number or a name.
    if (!bare.empty() && (open.back() == ']' || !key.empty())) {
      const bool is_word = bare == "true" || bare == "false" || bare == "null";
      const auto number = NumberAsJson(bare);
      add_value(number ? *number : is_word ? std::string(bare) : QuoteJson(bare));
      separator = ", ";
    }
    switch (part.marker) {
      case kQuote: {
        const bool is_typed = format.quotes_all && open.size() == 1 && !in.tools.IsText(tool, key);
        if (is_typed) {
          const TextUntil value = co_await TakeUntil(in.text, AnyOf(format.quote));
          if (value.marker != kNoMarker) add_value(in.tools.ToJson(tool, key, value.text));
          separator = ", ";
          break;
        }
        add_value("\"");
        const TextFunction add = [&in](std::string_view text) {
          in.sink.AddArguments(EscapeJson(text));
        };
        const int end = co_await CopyUntil(in.text, AnyOf(format.quote), add);
        if (end == kNoMarker) co_return;
        in.sink.AddArguments("\"");
        separator = ", ";
        break;
      }
      case kObject:
      case kList:
        add_value(part.marker == kObject ? "{" : "[");
        open.push_back(part.marker == kObject ? '}' : ']');
        separator.clear();
        break;
      case kObjectEnd:
      case kListEnd:
        in.sink.AddArguments(std::string(1, open.back()));
        open.pop_back();
        separator = ", ";
        break;
      case kComma:
        break;
      case kClose:
      default:  // the text has ended
        ended = true;
    }
  }
  for (; !open.empty(); open.pop_back()) in.sink.AddArguments(std::string(1, open.back()));
}

Parse<> ParseGemma(ToolParserInput in, GemmaFormat format) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  while (co_await CopyUntil(in.text, AnyOf(format.open), add_content) != kNoMarker) {
    if (!co_await in.text.TrySkip("call:")) {
      in.sink.AddContent(format.open);
      continue;
    }
    const TextUntil name = co_await TakeUntil(in.text, AnyOf("{", format.close));
    if (name.marker == kNoMarker) co_return;
    const std::string tool(StripAscii(name.text));
    in.sink.BeginCall(tool);
    if (name.marker == 1) {
      in.sink.AddArguments("{}");
      continue;
    }
    co_await CopyArguments(in, format, tool);
    co_await in.text.SkipBlanks();
    co_await in.text.TrySkip(format.close);
  }
}

}  // namespace

Parse<> ParseGemma4(ToolParserInput in) {
  return ParseGemma(in, {.open = "<|tool_call>", .close = "<tool_call|>", .quote = "<|\"|>"});
}

Parse<> ParseFunctionGemma(ToolParserInput in) {
  return ParseGemma(in, {.open = "<start_function_call>",
                         .close = "<end_function_call>",
                         .quote = "<escape>",
                         .quotes_all = true});
}

}  // namespace tandem
