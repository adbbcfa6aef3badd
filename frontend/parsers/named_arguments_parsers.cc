// Calls as a name, a separator and the arguments as JSON: Mistral, DeepSeek V3, Kimi K2 and
// PLaMo 3.

#include "common/strings.h"
#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

Parse<> DropRest(TextSource& text) {
  return CopyRest(text, [](std::string_view) {});
}

// ---- Mistral ----

enum class MistralForm { kList, kObject, kNamed };

Parse<MistralForm> MistralFormOf(TextSource& text) {
  size_t offset = co_await ScanBlanks(text, 0);
  const int first = co_await text.Peek(offset);
  if (first == '{') co_return MistralForm::kObject;
  if (first != '[') co_return MistralForm::kNamed;
  offset = co_await ScanBlanks(text, offset + 1);
  const int second = co_await text.Peek(offset);
  co_return second == '{' || second == ']' ? MistralForm::kList : MistralForm::kNamed;
}

// At a list or object of calls; the rest of a text that is none is content.
Parse<> CopyMistralJson(ToolParserInput in, MistralForm form) {
  co_await in.text.SkipBlanks();
  if (form == MistralForm::kList) {
    co_await CopyCallList(in.text, StringArguments::kUnquoted, &in.sink);
    co_return;
  }
  const ScannedCall call = co_await ScanCall(in.text, 0);
  if (call.kind == ScannedCall::Kind::kNone || call.kind == ScannedCall::Kind::kCut) co_return;
  co_await CopyCall(in.text, call, StringArguments::kUnquoted, &in.sink);
}

// NAME[ARGS]{…} or NAME{…}; the name ends where the text does.
Parse<> CopyMistralNamed(ToolParserInput in) {
  TextUntil name = co_await TakeUntil(in.text, AnyOf("[ARGS]", "{"));
  in.sink.BeginCall(StripAscii(name.text));
  if (name.marker == kNoMarker) {
    in.sink.AddArguments("{}");
    co_return;
  }
  if (name.marker == 1) in.text.Unskip(1);
  co_await in.text.SkipBlanks();
  co_await CopyJson(in.text, [&in](std::string_view part) { in.sink.AddArguments(part); });
}

}  // namespace

// [TOOL_CALLS]N[ARGS]A, any number, or [TOOL_CALLS]N{…}; tokenizers before v11 write
// [TOOL_CALLS][{"name": N, "arguments": A}, …]. A forced call may lack the marker.
Parse<> ParseMistral(ToolParserInput in) {
  if (in.must_call) {
    const MistralForm form = co_await MistralFormOf(in.text);
    if (form == MistralForm::kList) co_await CopyMistralJson(in, form);
  }
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  while (co_await CopyUntil(in.text, AnyOf("[TOOL_CALLS]"), add_content) != kNoMarker) {
    const MistralForm form = co_await MistralFormOf(in.text);
    if (form == MistralForm::kNamed) {
      co_await CopyMistralNamed(in);
    } else {
      co_await CopyMistralJson(in, form);
    }
  }
}

// <｜tool▁calls▁begin｜>(<｜tool▁call▁begin｜>function<｜tool▁sep｜>N\n```json\nA\n```<｜tool▁call▁end｜>)*
// <｜tool▁calls▁end｜>
Parse<> ParseDeepseekV3(ToolParserInput in) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  const TextFunction add_arguments = [&in](std::string_view part) { in.sink.AddArguments(part); };
  const Markers next_call = {"<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>"};
  while (co_await CopyUntil(in.text, AnyOf("<｜tool▁calls▁begin｜>"), add_content) != kNoMarker) {
    while ((co_await TakeUntil(in.text, next_call)).marker == 0) {
      if ((co_await TakeUntil(in.text, AnyOf("<｜tool▁sep｜>"))).marker == kNoMarker) co_return;
      const TextUntil name =
          co_await TakeUntil(in.text, AnyOf("\n```json\n", "<｜tool▁call▁end｜>", "\n"));
      if (name.marker == kNoMarker) co_return;
      in.sink.BeginCall(StripAscii(name.text));
      if (name.marker == 1) continue;
      const Markers ends = {"\n```<｜tool▁call▁end｜>", "```<｜tool▁call▁end｜>",
                            "<｜tool▁call▁end｜>"};
      co_await CopyUntil(in.text, ends, add_arguments);
    }
  }
}

// As V3, with <｜tool▁call▁begin｜>N<｜tool▁sep｜>A<｜tool▁call▁end｜>.
Parse<> ParseDeepseekV31(ToolParserInput in) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  const TextFunction add_arguments = [&in](std::string_view part) { in.sink.AddArguments(part); };
  const Markers next_call = {"<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>"};
  while (co_await CopyUntil(in.text, AnyOf("<｜tool▁calls▁begin｜>"), add_content) != kNoMarker) {
    while ((co_await TakeUntil(in.text, next_call)).marker == 0) {
      const TextUntil name = co_await TakeUntil(in.text, AnyOf("<｜tool▁sep｜>"));
      if (name.marker == kNoMarker) co_return;
      in.sink.BeginCall(StripAscii(name.text));
      co_await CopyUntil(in.text, AnyOf("<｜tool▁call▁end｜>"), add_arguments);
    }
  }
}

// <|tool_calls_section_begin|>(<|tool_call_begin|>functions.N:INDEX<|tool_call_argument_begin|>A
// <|tool_call_end|>)*<|tool_calls_section_end|>; the text before the arguments is the call's id.
// What comes after the section is dropped.
Parse<> ParseKimiK2(ToolParserInput in) {
  constexpr std::string_view kSectionEnd = "<|tool_calls_section_end|>";
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  const TextFunction add_arguments = [&in](std::string_view part) { in.sink.AddArguments(part); };
  if (co_await CopyUntil(in.text, AnyOf("<|tool_calls_section_begin|>"), add_content) ==
      kNoMarker) {
    co_return;
  }
  while ((co_await TakeUntil(in.text, AnyOf("<|tool_call_begin|>", kSectionEnd))).marker == 0) {
    const TextUntil head = co_await TakeUntil(in.text, AnyOf("<|tool_call_argument_begin|>"));
    if (head.marker == kNoMarker) co_return;
    const std::string_view id = StripAscii(head.text);
    const size_t colon = id.rfind(':');
    if (colon == std::string_view::npos) {
      co_await TakeUntil(in.text, AnyOf("<|tool_call_end|>", kSectionEnd));
      continue;
    }
    std::string_view name = id.substr(0, colon);
    if (const size_t dot = name.rfind('.'); dot != std::string_view::npos)
      name.remove_prefix(dot + 1);
    in.sink.BeginCall(name, id);
    co_await in.text.SkipBlanks();
    const int end =
        co_await CopyUntil(in.text, AnyOf("<|tool_call_end|>", kSectionEnd), add_arguments);
    if (end != 0) break;
  }
  co_await DropRest(in.text);
}

// begin_tool_requests (begin_tool_request begin_tool_name N end_tool_name
// begin_tool_arguments <|plamo:constrain|>json<|plamo:msg|> A end_tool_arguments
// end_tool_request)* end_tool_requests, each word as <|plamo:WORD:plamo|>.
Parse<> ParsePlamo3(ToolParserInput in) {
  constexpr std::string_view kBegin = "<|plamo:begin_tool_requests:plamo|>";
  constexpr std::string_view kEnd = "<|plamo:end_tool_requests:plamo|>";
  constexpr std::string_view kTurnEnd = "<|plamo:tag|>";
  constexpr std::string_view kName = "<|plamo:begin_tool_name:plamo|>";
  constexpr std::string_view kArguments = "<|plamo:msg|>";
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  const TextFunction add_arguments = [&in](std::string_view part) { in.sink.AddArguments(part); };
  for (;;) {
    const int begin = co_await CopyUntil(in.text, AnyOf(kBegin, kTurnEnd), add_content);
    if (begin == kNoMarker) co_return;
    for (bool in_calls = begin == 0; in_calls;) {
      const TextUntil gap = co_await TakeUntil(in.text, AnyOf(kName, kEnd, kTurnEnd));
      if (gap.marker != 0) break;
      const TextUntil name = co_await TakeUntil(
          in.text, AnyOf("<|plamo:end_tool_name:plamo|>", kArguments, kEnd, kTurnEnd));
      if (name.marker == kNoMarker) co_return;
      in.sink.BeginCall(StripAscii(name.text));
      in_calls = name.marker < 2;
      int next = name.marker;
      if (next == 0) {
        const TextUntil head =
            co_await TakeUntil(in.text, AnyOf(kArguments, "<|plamo:end_tool_request:plamo|>"));
        next = head.marker == 0 ? 1 : 0;
      }
      if (next != 1) {
        in.sink.AddArguments("{}");
        continue;
      }
      const Markers ends = {"<|plamo:end_tool_arguments:plamo|>", kTurnEnd};
      co_await in.text.SkipBlanks();
      const bool is_empty = co_await in.text.StartsWith(ends[0]);
      if (is_empty) in.sink.AddArguments("{}");
      in_calls = co_await CopyUntil(in.text, ends, add_arguments) == 0;
    }
  }
}

}  // namespace tandem
