// Calls as one JSON list of {"name": N, "arguments": A} after a marker.

#include <nlohmann/json.hpp>

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

namespace {

// {N: A} at `offset`: the call begins with its arguments. False: it is none, or the text ended.
Parse<bool> CopyNamedObject(ToolParserInput in, size_t offset) {
  if (co_await in.text.Peek(offset) != '{') co_return false;
  offset = co_await ScanBlanks(in.text, offset + 1);
  if (co_await in.text.Peek(offset) != '"') co_return false;
  const std::optional<size_t> name_end = co_await ScanJson(in.text, offset);
  if (!name_end) co_return false;
  const std::string quoted(in.text.pending().substr(offset, *name_end - offset));
  const auto name = nlohmann::json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  if (!name.is_string()) co_return false;
  offset = co_await ScanBlanks(in.text, *name_end);
  if (co_await in.text.Peek(offset) != ':') co_return false;
  offset = co_await ScanBlanks(in.text, offset + 1);
  if (co_await in.text.Peek(offset) != '{') co_return false;
  in.sink.BeginCall(name.get_ref<const std::string&>());
  in.text.Skip(offset);
  const TextFunction add_arguments = [&in](std::string_view part) { in.sink.AddArguments(part); };
  if (!co_await CopyJson(in.text, add_arguments)) co_return false;
  offset = co_await ScanBlanks(in.text, 0);
  if (co_await in.text.Peek(offset) != '}') co_return false;
  in.text.Skip(offset + 1);
  co_return true;
}

// At a '['. False: the text went on otherwise, or ended; the rest is not consumed.
Parse<bool> CopyNamedList(ToolParserInput in) {
  size_t offset = 1;
  for (;;) {
    offset = co_await ScanBlanks(in.text, offset);
    if (!co_await CopyNamedObject(in, offset)) co_return false;
    offset = co_await ScanBlanks(in.text, 0);
    const int next = co_await in.text.Peek(offset);
    if (next == ']') in.text.Skip(offset + 1);
    if (next != ',') co_return next == ']';
    ++offset;
  }
}

}  // namespace

// <|tools_prefix|>[{N: A}, …]<|tools_suffix|>; the end may be missing. What follows a slip in the
// list is dropped up to its end, but a list without a call is content.
Parse<> ParseApertus(ToolParserInput in) {
  constexpr std::string_view kOpen = "<|tools_prefix|>";
  constexpr std::string_view kClose = "<|tools_suffix|>";
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  for (;;) {
    const int marker = co_await CopyUntil(in.text, AnyOf(kOpen, kClose), add_content);
    if (marker == kNoMarker) co_return;
    if (marker == 1) continue;
    const size_t begin = co_await ScanBlanks(in.text, 0);
    if (co_await in.text.Peek(begin) == '[') in.text.Skip(begin);
    const int32_t num_before = in.sink.num_calls();
    bool whole = false;
    if (co_await in.text.Peek() == '[') whole = co_await CopyNamedList(in);
    if (whole) continue;
    if (in.sink.num_calls() == num_before) {
      in.sink.AddContent(kOpen);
    } else {
      co_await TakeUntil(in.text, AnyOf(kClose));
    }
  }
}

}  // namespace tandem
