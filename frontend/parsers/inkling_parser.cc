// Inkling: blocks with a token for their kind,
//   <|message_model|><|content_thinking|>…<|end_message|>
//   <|message_model|><|content_text|>…<|end_message|>
//   <|message_model|>N<|content_invoke_tool_json|>{"name": N, "args": A}<|end_message|>
// in any order. The prompt ends with the first token, so a name before the kind is no content.

#include <cctype>
#include <string>

#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

enum Marker {
  kMessage,
  kText,
  kThinking,
  kCall,
  kToolText,
  kToolError,
  kEndSampling,
  kEnd,
};
const Markers& InklingMarkers() {
  static const Markers markers = {"<|message_model|>",
                                  "<|content_text|>",
                                  "<|content_thinking|>",
                                  "<|content_invoke_tool_json|>",
                                  "<|content_invoke_tool_text|>",
                                  "<|content_tool_error|>",
                                  "<|content_model_end_sampling|>",
                                  "<|end_message|>"};
  return markers;
}

// A name that stands before the kind of a block, looked at and not consumed: its length, or 0 where
// the text is none.
Parse<size_t> ScanHeader(TextSource& text) {
  constexpr size_t kLongest = 256;
  size_t length = 0;
  int byte = co_await text.Peek();
  while (length < kLongest && byte != kEndOfText &&
         (std::isalnum(byte) != 0 || byte == '_' || byte == '.' || byte == '-')) {
    byte = co_await text.Peek(++length);
  }
  constexpr std::string_view kOpening = "<|";
  for (size_t i = 0; i < kOpening.size(); ++i) {
    const int next = co_await text.Peek(length + i);
    if (next != kOpening[i]) co_return 0;
  }
  co_return length;
}

Parse<> CopyInklingCall(ToolParserInput in) {
  constexpr CallKeys kKeys = {"name", "args", "arguments"};
  co_await in.text.SkipBlanks();
  const ScannedCall call = co_await ScanCall(in.text, 0, kKeys);
  if (call.kind != ScannedCall::Kind::kNone && call.kind != ScannedCall::Kind::kCut) {
    co_await CopyCall(in.text, call, StringArguments::kUnquoted, &in.sink);
  }
  co_await TakeUntil(in.text, AnyOf("<|end_message|>", "<|content_model_end_sampling|>"));
}

}  // namespace

Parse<> ParseInkling(ToolParserInput in) {
  bool in_header = !*in.in_reasoning;
  HeldBlanks held;  // the last ones of reasoning belong to the format
  const auto add_reasoning = [&in](std::string_view part) { in.sink.AddReasoning(part); };
  for (;;) {
    if (in_header) {
      const size_t header = co_await ScanHeader(in.text);
      in.text.Skip(header);
    }
    const int found = co_await CopyUntil(in.text, InklingMarkers(), [&](std::string_view part) {
      *in.in_reasoning ? held.Pass(part, add_reasoning) : in.sink.AddContent(part);
    });
    if (found == kNoMarker) co_return;
    held.Take();
    *in.in_reasoning = found == kThinking;
    in_header = found == kMessage;
    if (found == kCall) co_await CopyInklingCall(in);
  }
}

}  // namespace tandem
