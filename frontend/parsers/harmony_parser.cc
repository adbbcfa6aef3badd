// gpt-oss' harmony: messages with a header,
//   <|start|>assistant<|channel|>commentary to=functions.N <|constrain|>json<|message|>A<|call|>
// The first header begins at its channel, because the prompt ends with <|start|>assistant; the
// recipient may stand before the channel too. Each message to functions.N is a call, and so is one
// to N, as models write at times. One on the channel analysis is reasoning. One to a tool that
// would run in the server (python, browser, container) is so there, content on the channel final,
// and otherwise not shown: no client could answer it. It counts as reasoning. All others are
// content.

#include "common/strings.h"
#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

struct Header {
  std::string recipient;
  std::string channel;
};

Header ParseHeader(std::string_view text) {
  Header header;
  constexpr std::string_view kChannel = "<|channel|>";
  constexpr std::string_view kRecipient = "to=";
  const size_t channel = text.find(kChannel);
  if (channel != std::string_view::npos) {
    const std::string_view rest = text.substr(channel + kChannel.size());
    header.channel = rest.substr(0, rest.find_first_of(" <\n"));
  }
  const size_t recipient = text.find(kRecipient);
  if (recipient != std::string_view::npos) {
    const std::string_view rest = text.substr(recipient + kRecipient.size());
    header.recipient = rest.substr(0, rest.find_first_of(" <\n"));
  }
  return header;
}

// The function that a message goes to; empty: it is no call.
std::string_view FunctionOf(std::string_view recipient) {
  constexpr std::string_view kFunctions = "functions.";
  if (recipient.starts_with(kFunctions)) return recipient.substr(kFunctions.size());
  const std::string_view first = recipient.substr(0, recipient.find('.'));
  for (const std::string_view other : {"assistant", "browser", "container", "python"}) {
    if (first == other) return {};
  }
  return recipient;
}

Parse<> CopyMessage(ToolParserInput in, Header header) {
  const Markers ends = {"<|end|>", "<|call|>", "<|return|>"};
  const std::string_view function = FunctionOf(header.recipient);
  if (!function.empty()) {
    in.sink.BeginCall(function);
    co_await CopyUntil(in.text, ends, [&in](std::string_view part) { in.sink.AddArguments(part); });
    co_return;
  }
  const bool is_analysis = header.channel == "analysis";
  const bool is_hidden = !is_analysis && !header.recipient.empty() && header.channel != "final";
  if (in.in_reasoning != nullptr) *in.in_reasoning = is_analysis || is_hidden;
  co_await CopyUntil(in.text, ends, [&in, is_analysis, is_hidden](std::string_view part) {
    if (is_hidden) return;
    is_analysis ? in.sink.AddReasoning(part) : in.sink.AddContent(part);
  });
  if (in.in_reasoning != nullptr) *in.in_reasoning = false;
}

}  // namespace

Parse<> ParseHarmony(ToolParserInput in) {
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  const bool has_header = co_await in.text.StartsWith("<|channel|>") ||
                          co_await in.text.StartsWith("<|start|>") ||
                          co_await in.text.StartsWith(" to=");
  if (!has_header) {
    co_await CopyUntil(in.text, AnyOf("<|end|>", "<|return|>"), add_content);
  }
  for (;;) {
    const TextUntil header = co_await TakeUntil(in.text, AnyOf("<|message|>"));
    if (header.marker == kNoMarker) co_return;  // a header that is cut off is no text
    co_await CopyMessage(in, ParseHeader(header.text));
  }
}

}  // namespace tandem
