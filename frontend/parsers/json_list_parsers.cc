// Calls as one JSON list of {"name": N, "arguments": A} after a marker.

#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

// At a list: adds its calls once it is complete. False, and nothing is consumed: it is none, or the
// text ends within it.
Parse<bool> TryTakeList(ToolParserInput in, size_t offset) {
  if (co_await in.text.Peek(offset) != '[') co_return false;
  const std::optional<size_t> end = co_await ScanJson(in.text, offset);
  if (!end) co_return false;
  const std::string list(in.text.pending().substr(offset, *end - offset));
  if (!AddCallsOf(list, StringArguments::kUnquoted, &in.sink)) co_return false;
  in.text.Skip(*end);
  co_return true;
}

}  // namespace

// <|tool_call|>[…]; granite 3.1 writes the marker as the text <tool_call>.
Parse<> ParseGranite(ToolParserInput in) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  while (co_await CopyUntil(in.text, AnyOf("<|tool_call|>", "<tool_call>"), add_content) !=
         kNoMarker) {
    co_await in.text.SkipBlanks();
    if (co_await in.text.Peek() != '[') continue;
    const bool whole = co_await CopyCallList(in.text, StringArguments::kQuoted, &in.sink);
    if (!whole) co_await CopyRest(in.text, [](std::string_view) {});
  }
}

// functools[…]
Parse<> ParsePhi4Mini(ToolParserInput in) {
  constexpr std::string_view kMarker = "functools[";
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  while (co_await CopyUntil(in.text, AnyOf(kMarker), add_content) != kNoMarker) {
    in.text.Unskip(1);
    if (co_await TryTakeList(in, 0)) continue;
    in.sink.AddContent(kMarker);
    in.text.Skip(1);
  }
}

namespace {

// <tool_calls>[…]</tool_calls>: a list without its end is text.
Parse<bool> TakeToolCalls(ToolParserInput in) {
  const TextUntil block = co_await TakeUntil(in.text, AnyOf("</tool_calls>"));
  const bool whole = block.marker != kNoMarker;
  if (whole && AddCallsOf(block.text, StringArguments::kUnquoted, &in.sink)) co_return true;
  in.sink.AddContent("<tool_calls>");
  in.sink.AddContent(block.text);
  if (whole) in.sink.AddContent("</tool_calls>");
  co_return false;
}

}  // namespace

// What comes after the calls is dropped.
Parse<> ParseJamba(ToolParserInput in) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  while (co_await CopyUntil(in.text, AnyOf("<tool_calls>"), add_content) != kNoMarker) {
    if (!co_await TakeToolCalls(in)) continue;
    co_await CopyRest(in.text, [](std::string_view) {});
  }
}

// The same; lists inside <think>…</think> are no calls.
Parse<> ParseHunyuan(ToolParserInput in) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  for (;;) {
    const int marker = co_await CopyUntil(in.text, AnyOf("<tool_calls>", "<think>"), add_content);
    if (marker == kNoMarker) co_return;
    if (marker == 0) {
      co_await TakeToolCalls(in);
      continue;
    }
    in.sink.AddContent("<think>");
    const int end = co_await CopyUntil(in.text, AnyOf("</think>"), add_content);
    if (end != kNoMarker) in.sink.AddContent("</think>");
  }
}

// A list that is the whole text or follows </think>, or stands in ```json … ```, after [TOOL_CALLS]
// or in <tool_call> … </tool_call>.
Parse<> ParseXlam(ToolParserInput in) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  const Markers markers = {"```json", "```", "[TOOL_CALLS]", "<tool_call>", "</think>"};
  const Markers ends = {"```", "```", "", "</tool_call>", ""};
  co_await TryTakeList(in, co_await ScanBlanks(in.text, 0));
  for (;;) {
    const int marker = co_await CopyUntil(in.text, markers, add_content);
    if (marker == kNoMarker) co_return;
    const auto i = static_cast<size_t>(marker);
    if (markers[i] == "</think>") in.sink.AddContent("</think>");
    if (co_await TryTakeList(in, co_await ScanBlanks(in.text, 0))) {
      co_await in.text.SkipBlanks();
      co_await in.text.TrySkip(ends[i]);
    } else if (markers[i] != "</think>") {
      in.sink.AddContent(markers[i]);
    }
  }
}

}  // namespace tandem
