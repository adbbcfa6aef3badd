// Cohere's Command models: parts between tokens,
//   <|START_THINKING|>…<|END_THINKING|><|START_RESPONSE|>…<|END_RESPONSE|> or
//   <|START_TEXT|>…<|END_TEXT|> or
//   <|START_ACTION|>[{"tool_call_id": "0", "tool_name": N, "parameters": A}, …]<|END_ACTION|>
// Spans of texts that cite a document, <co>…</co: 0:[1]>, are shown without their marks.

#include <array>

#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

// After "</co": the rest of such a mark, consumed. False: another word stands there.
Parse<bool> TrySkipCitation(TextSource& text) {
  constexpr size_t kLongest = 256;
  size_t length = 0;
  int byte = co_await text.Peek();
  if (byte != ':') co_return false;
  while (byte != '>' && byte != '<' && byte != kEndOfText && length < kLongest) {
    byte = co_await text.Peek(++length);
  }
  if (byte != '>') co_return false;
  text.Skip(length + 1);
  co_return true;
}

}  // namespace

Parse<> ParseCohere(ToolParserInput in) {
  const Markers markers = {"<|START_THINKING|>",
                           "<|END_THINKING|>",
                           "<|START_RESPONSE|>",
                           "<|END_RESPONSE|>",
                           "<|START_TEXT|>",
                           "<|END_TEXT|>",
                           "<|START_ACTION|>",
                           "<co>",
                           "</co"};
  enum { kThinking = 0, kAction = 6, kCitation = 7, kCitationEnd = 8 };
  constexpr CallKeys kKeys = {"tool_name", "parameters", "parameters", "tool_call_id"};
  const TextFunction add = [&in](std::string_view part) {
    *in.in_reasoning ? in.sink.AddReasoning(part) : in.sink.AddContent(part);
  };
  HeldBlanks held;  // those at the end of a part belong to the format
  for (;;) {
    const int found =
        co_await CopyUntil(in.text, markers, [&](std::string_view part) { held.Pass(part, add); });
    if (found == kNoMarker) co_return;
    if (found == kCitation) continue;
    if (found == kCitationEnd) {
      const bool is_mark = co_await TrySkipCitation(in.text);
      if (!is_mark) held.Pass("</co", add);
      continue;
    }
    held.Take();
    *in.in_reasoning = found == kThinking;
    if (found != kAction) continue;
    co_await in.text.SkipBlanks();
    const bool is_list = co_await in.text.StartsWith("[");
    if (is_list) co_await CopyCallList(in.text, StringArguments::kUnquoted, &in.sink, kKeys);
    co_await TakeUntil(in.text, AnyOf("<|END_ACTION|>"));
  }
}

}  // namespace tandem
