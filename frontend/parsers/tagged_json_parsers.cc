// Calls as JSON objects between tags, one object per pair of tags: hermes and its relatives.

#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

// What does not become a call is content again; but the beginning of one that the text's end cuts
// off is of no use after others.
void AddCut(std::string_view tag, std::string_view rest, MessageSink* sink) {
  if (sink->num_calls() > 0) return;
  sink->AddContent(tag);
  sink->AddContent(rest);
}

// After `open`: the call begins as soon as its name and the beginning of its arguments are there.
Parse<> CopyTagged(ToolParserInput in, std::string_view open, std::string_view close) {
  using Kind = ScannedCall::Kind;
  const size_t begin = co_await ScanBlanks(in.text, 0);
  const ScannedCall call = co_await ScanCall(in.text, begin);
  if (call.kind == Kind::kCut || co_await in.text.Peek(begin) == kEndOfText) {
    AddCut(open, in.text.pending(), &in.sink);
    in.text.Skip(in.text.pending().size());
    co_return;
  }
  if (call.kind == Kind::kNone) {
    in.sink.AddContent(open);
    co_return;
  }
  co_await CopyCall(in.text, call, StringArguments::kQuoted, &in.sink);
  co_await in.text.SkipBlanks();
  co_await in.text.TrySkip(close);
}

Parse<> ParseStreamed(ToolParserInput in, std::string_view open, std::string_view close) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  while (co_await CopyUntil(in.text, AnyOf(open), add_content) != kNoMarker) {
    co_await CopyTagged(in, open, close);
  }
}

// A block counts once its end is there.
Parse<> ParseBlocks(ToolParserInput in, std::string_view open, std::string_view close) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  while (co_await CopyUntil(in.text, AnyOf(open), add_content) != kNoMarker) {
    const TextUntil block = co_await TakeUntil(in.text, AnyOf(close));
    const bool whole = block.marker != kNoMarker;
    if (whole && AddCallsOf("[" + block.text + "]", StringArguments::kUnquoted, &in.sink)) continue;
    if (!whole) {
      AddCut(open, block.text, &in.sink);
      co_return;
    }
    in.sink.AddContent(open);
    in.sink.AddContent(block.text);
    in.sink.AddContent(close);
  }
}

}  // namespace

// <tool_call>\n{"name": N, "arguments": A}\n</tool_call>, any number; the last end may be missing.
Parse<> ParseHermes(ToolParserInput in) { return ParseStreamed(in, "<tool_call>", "</tool_call>"); }

Parse<> ParseLongcat(ToolParserInput in) {
  return ParseStreamed(in, "<longcat_tool_call>", "</longcat_tool_call>");
}

// As hermes, but a call without its end is text.
Parse<> ParseGranite4(ToolParserInput in) { return ParseBlocks(in, "<tool_call>", "</tool_call>"); }

Parse<> ParseErnie45(ToolParserInput in) { return ParseBlocks(in, "<tool_call>", "</tool_call>"); }

// <function_call> {"name": N, "arguments": A}, any number; nothing ends a call.
Parse<> ParseGranite20bFc(ToolParserInput in) { return ParseStreamed(in, "<function_call>", ""); }

// Content<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": N, "arguments": A}, or the object
// after <|function_call|>.
Parse<> ParseGigachat3(ToolParserInput in) {
  const Markers markers = {"<|message_sep|>", "function call<|role_sep|>\n", "<|function_call|>"};
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  for (;;) {
    const int marker = co_await CopyUntil(in.text, markers, add_content);
    if (marker == kNoMarker) co_return;
    if (marker > 0) co_await CopyTagged(in, markers[static_cast<size_t>(marker)], "");
  }
}

// <|action_start|><|plugin|>{"name": N, "parameters": A}<|action_end|>
Parse<> ParseInternlm(ToolParserInput in) {
  return ParseStreamed(in, "<|action_start|><|plugin|>", "<|action_end|>");
}

namespace {

// After a call: what joins it to the next one, or stands at the end of the text.
Parse<> SkipJoiner(TextSource& text) {
  const size_t offset = co_await ScanBlanks(text, 0);
  const int byte = co_await text.Peek(offset);
  if (byte == ';') {
    text.Skip(offset + 1);
    co_await text.SkipBlanks();
  } else if (byte == '{' || byte == kEndOfText) {
    text.Skip(offset);
  }
}

}  // namespace

// {"name": N, "parameters": A} anywhere in the text, joined by "; ", or in a list.
Parse<> ParseLlama3Json(ToolParserInput in) {
  using Kind = ScannedCall::Kind;
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  for (;;) {
    const int marker = co_await CopyUntil(in.text, AnyOf("<|python_tag|>", "{", "["), add_content);
    if (marker == kNoMarker) co_return;
    if (marker == 0) continue;
    in.text.Unskip(1);
    const bool in_list = marker == 2;
    const size_t begin = co_await ScanBlanks(in.text, in_list ? 1 : 0);
    const ScannedCall call = co_await ScanCall(in.text, begin);
    if (call.kind == Kind::kArguments || call.kind == Kind::kWhole) {
      if (in_list) {
        co_await CopyCallList(in.text, StringArguments::kQuoted, &in.sink);
      } else {
        co_await CopyCall(in.text, call, StringArguments::kQuoted, &in.sink);
      }
      co_await SkipJoiner(in.text);
      continue;
    }
    if (call.kind == Kind::kCut) {
      AddCut("", in.text.pending(), &in.sink);
      in.text.Skip(in.text.pending().size());
      co_return;
    }
    const size_t end = in_list ? 1 : std::max<size_t>(call.end, 1);
    in.sink.AddContent(in.text.pending().substr(0, end));
    in.text.Skip(end);
  }
}

}  // namespace tandem
