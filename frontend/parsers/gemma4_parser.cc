// <|tool_call>call:N{k:<|"|>text<|"|>,k2:3,k3:[…],k4:{…}}<tool_call|>, any number.

#include <vector>

#include "common/strings.h"
#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

constexpr std::string_view kQuote = "<|\"|>";
constexpr std::string_view kClose = "<tool_call|>";

// After the first '{': writes the object as JSON while it comes. What is open when the text ends is
// closed, but for a text that has no end.
Parse<> CopyArguments(ToolParserInput in) {
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
  const Markers stops = {kQuote, kClose, "{", "[", "}", "]", ",", ":"};
  bool ended = false;
  while (!open.empty() && !ended) {
    const TextUntil part = co_await TakeUntil(in.text, stops);
    const std::string_view bare = StripAscii(part.text);
    if (part.marker == 7) {
      key = bare;
      continue;
    }
    // A value after its last byte: a number or a name.
    if (!bare.empty() && (open.back() == ']' || !key.empty())) {
      const bool is_json = ParseNumber<double>(bare).has_value() || bare == "true" ||
                           bare == "false" || bare == "null";
      add_value(is_json ? std::string(bare) : QuoteJson(bare));
      separator = ", ";
    }
    switch (part.marker) {
      case 0: {
        add_value("\"");
        const int end = co_await CopyUntil(in.text, AnyOf(kQuote), [&in](std::string_view text) {
          in.sink.AddArguments(EscapeJson(text));
        });
        if (end == kNoMarker) co_return;
        in.sink.AddArguments("\"");
        separator = ", ";
        break;
      }
      case 2:
      case 3:
        add_value(part.marker == 2 ? "{" : "[");
        open.push_back(part.marker == 2 ? '}' : ']');
        separator.clear();
        break;
      case 4:
      case 5:
        in.sink.AddArguments(std::string(1, open.back()));
        open.pop_back();
        separator = ", ";
        break;
      case 6:
        break;
      default:
        ended = true;
    }
  }
  for (; !open.empty(); open.pop_back()) in.sink.AddArguments(std::string(1, open.back()));
}

}  // namespace

Parse<> ParseGemma4(ToolParserInput in) {
  constexpr std::string_view kOpen = "<|tool_call>";
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  while (co_await CopyUntil(in.text, AnyOf(kOpen), add_content) != kNoMarker) {
    if (!co_await in.text.TrySkip("call:")) {
      in.sink.AddContent(kOpen);
      continue;
    }
    const TextUntil name = co_await TakeUntil(in.text, AnyOf("{", kClose));
    if (name.marker == kNoMarker) co_return;
    in.sink.BeginCall(StripAscii(name.text));
    if (name.marker == 1) {
      in.sink.AddArguments("{}");
      continue;
    }
    co_await CopyArguments(in);
    co_await in.text.SkipBlanks();
    co_await in.text.TrySkip(kClose);
  }
}

}  // namespace tandem
