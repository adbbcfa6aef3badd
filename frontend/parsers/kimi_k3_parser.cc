// Kimi K3: channels between three tokens,
//   <|open|>think<|sep|>…<|close|>think<|sep|><|open|>response<|sep|>…<|close|>response<|sep|>
//   <|open|>tools<|sep|>(<|open|>call tool="N" index="1"<|sep|>
//   (<|open|>argument key="K" type="T"<|sep|>V<|close|>argument<|sep|>)*<|close|>call<|sep|>)*
//   <|close|>tools<|sep|><|close|>message<|sep|>
// A value of the type string is the text itself, others are JSON. The prompt may have opened the
// first channel; text outside of all is content.

#include <nlohmann/json.hpp>
#include <optional>

#include "common/strings.h"
#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSeparator = "<|sep|>";
constexpr std::string_view kToolsEnd = "<|close|>tools<|sep|>";

std::string Unescaped(std::string_view text) {
  constexpr std::string_view kQuote = "&quot;", kAnd = "&amp;";
  std::string plain;
  while (!text.empty()) {
    if (text.starts_with(kQuote)) {
      plain += '"';
      text.remove_prefix(kQuote.size());
    } else if (text.starts_with(kAnd)) {
      plain += '&';
      text.remove_prefix(kAnd.size());
    } else {
      plain += text.front();
      text.remove_prefix(1);
    }
  }
  return plain;
}

// The value of an attribute in `key="K" type="T"`; nullopt: it is not there.
std::optional<std::string> Attribute(std::string_view head, std::string_view name) {
  const std::string opening = std::string(name) + "=\"";
  const size_t begin = (" " + std::string(head)).find(" " + opening);
  if (begin == std::string::npos) return std::nullopt;
  head.remove_prefix(begin + opening.size());
  return Unescaped(head.substr(0, head.find('"')));
}

// The value of an argument that is no text: its JSON, or what is none as a string.
std::string ValueOf(std::string_view text) {
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return QuoteJson(text);
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// After `<|open|>argument `. False: the text ended within it.
Parse<bool> CopyArgument(ToolParserInput in, bool is_first) {
  constexpr std::string_view kEnd = "<|close|>argument<|sep|>";
  const TextUntil head = co_await TakeUntil(in.text, AnyOf(kSeparator));
  if (head.marker == kNoMarker) {
    in.sink.AddArguments(is_first ? "{}" : "}");
    co_return false;
  }
  const std::string key = Attribute(head.text, "key").value_or("");
  const std::string begin = (is_first ? "{" : ", ") + QuoteJson(key) + ": ";
  if (Attribute(head.text, "type").value_or("string") == "string") {
    in.sink.AddArguments(begin + "\"");
    const int end = co_await CopyUntil(in.text, AnyOf(kEnd), [&in](std::string_view part) {
      in.sink.AddArguments(EscapeJson(part));
    });
    if (end != kNoMarker) in.sink.AddArguments("\"");
    co_return end != kNoMarker;
  }
  const TextUntil value = co_await TakeUntil(in.text, AnyOf(kEnd));
  if (value.marker != kNoMarker) in.sink.AddArguments(begin + ValueOf(value.text));
  // A value that the text's end cuts off is left out, and the object ends.
  if (value.marker == kNoMarker) in.sink.AddArguments(is_first ? "{}" : "}");
  co_return value.marker != kNoMarker;
}

// After `<|open|>call `. False: no other call can follow.
Parse<bool> CopyK3Call(ToolParserInput in) {
  const TextUntil head = co_await TakeUntil(in.text, AnyOf(kSeparator));
  if (head.marker == kNoMarker) co_return false;
  const std::string tool = Attribute(head.text, "tool").value_or("");
  if (tool.empty()) {
    const TextUntil rest = co_await TakeUntil(in.text, AnyOf("<|close|>call<|sep|>", kToolsEnd));
    co_return rest.marker == 0;
  }
  in.sink.BeginCall(tool);
  for (bool is_first = true;; is_first = false) {
    const TextUntil gap =
        co_await TakeUntil(in.text, AnyOf("<|open|>argument ", "<|close|>call<|sep|>", kToolsEnd));
    if (gap.marker != 0) {
      in.sink.AddArguments(is_first ? "{}" : "}");
      co_return gap.marker == 1;
    }
    const bool whole = co_await CopyArgument(in, is_first);
    if (!whole) co_return false;
  }
}

}  // namespace

// What comes after the calls is dropped.
Parse<> ParseKimiK3(ToolParserInput in) {
  const Markers markers = {"<|open|>think<|sep|>",    "<|close|>think<|sep|>",
                           "<|open|>response<|sep|>", "<|close|>response<|sep|>",
                           "<|close|>message<|sep|>", "<|open|>tools<|sep|>"};
  int found = 0;
  while (found != 5) {
    found = co_await CopyUntil(in.text, markers, [&in](std::string_view part) {
      *in.in_reasoning ? in.sink.AddReasoning(part) : in.sink.AddContent(part);
    });
    if (found == kNoMarker) co_return;
    *in.in_reasoning = found == 0;
  }
  for (bool goes_on = true; goes_on;) {
    const TextUntil gap = co_await TakeUntil(in.text, AnyOf("<|open|>call ", kToolsEnd));
    if (gap.marker != 0) break;
    goes_on = co_await CopyK3Call(in);
  }
  co_await CopyRest(in.text, [](std::string_view) {});
}

}  // namespace tandem
