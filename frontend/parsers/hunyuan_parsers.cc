// Calls of Hunyuan 3 and 4:
//   <tool_calls><tool_call>N<tool_sep><arg_key>K</arg_key><arg_value>V</arg_value></tool_call>
//   </tool_calls>
// where 4 has no <tool_sep>. The parameter's schema decides which JSON a value is. The markers of a
// checkpoint may all have one suffix ("<tool_calls:x>"), which the first one shows.

#include "common/strings.h"
#include "frontend/parsers/arguments_writer.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

struct HunyuanMarkers {
  explicit HunyuanMarkers(const std::string& suffix)
      : calls_end("</tool_calls" + suffix + ">"),
        call("<tool_call" + suffix + ">"),
        call_end("</tool_call" + suffix + ">"),
        separator("<tool_sep" + suffix + ">"),
        key("<arg_key" + suffix + ">"),
        key_end("</arg_key" + suffix + ">"),
        value("<arg_value" + suffix + ">"),
        value_end("</arg_value" + suffix + ">") {}
  const std::string calls_end, call, call_end, separator, key, key_end, value, value_end;
};

// After the marker of a call. False: no other call follows.
Parse<bool> CopyHunyuanCall(ToolParserInput in, const HunyuanMarkers& markers) {
  Markers name_ends = AnyOf(markers.separator, markers.key, markers.call_end, markers.calls_end);
  const TextUntil name = co_await TakeUntil(in.text, std::move(name_ends));
  if (name.marker == kNoMarker) co_return false;
  ArgumentsWriter out(in, std::string(StripAscii(name.text)));
  bool in_key = name.marker == 1;
  int end = name.marker - 1;  // 1: of the call, 2: of all calls
  while (end < 1) {
    if (!in_key) {
      Markers ends = AnyOf(markers.key, markers.call_end, markers.calls_end);
      const TextUntil before = co_await TakeUntil(in.text, std::move(ends));
      end = before.marker == kNoMarker ? 2 : before.marker;
      if (end != 0) break;
    }
    in_key = false;
    const TextUntil key = co_await TakeUntil(in.text, AnyOf(markers.key_end));
    co_await in.text.SkipBlanks();
    const bool has_value = co_await in.text.TrySkip(markers.value);
    if (!has_value) continue;
    const bool is_text = out.IsText(key.text);
    const int value_end =
        co_await CopyValue(in.text, key.text, is_text, AnyOf(markers.value_end), &out);
    if (value_end == kNoMarker && is_text) co_return false;  // cut off within a text
  }
  out.End();
  co_return end == 1;
}

// The suffix and '>' at the cursor, consumed; nullopt: another word stands there.
Parse<std::optional<std::string>> TakeSuffix(TextSource& text) {
  constexpr size_t kLongest = 64;
  size_t length = 0;
  int byte = co_await text.Peek();
  if (byte == ':') {
    while (byte != '>' && byte != '<' && !IsBlank(byte) && byte != kEndOfText &&
           length < kLongest) {
      byte = co_await text.Peek(++length);
    }
  }
  std::optional<std::string> suffix;
  if (byte == '>') {
    suffix = std::string(text.pending().substr(0, length));
    text.Skip(length + 1);
  }
  co_return suffix;
}

}  // namespace

// What comes after the calls is no content.
Parse<> ParseHunyuanCalls(ToolParserInput in) {
  constexpr std::string_view kBegin = "<tool_calls";
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  std::optional<std::string> suffix;
  while (!suffix) {
    const int begin = co_await CopyUntil(in.text, AnyOf(kBegin), add_content);
    if (begin == kNoMarker) co_return;
    suffix = co_await TakeSuffix(in.text);
    if (!suffix) in.sink.AddContent(kBegin);
  }
  const HunyuanMarkers markers(*suffix);
  for (bool goes_on = true; goes_on;) {
    Markers next = AnyOf(markers.call, markers.calls_end);
    const int found = co_await CopyUntil(in.text, std::move(next), [](std::string_view) {});
    goes_on = found == 0;
    if (goes_on) goes_on = co_await CopyHunyuanCall(in, markers);
  }
  co_await CopyRest(in.text, [](std::string_view) {});
}

}  // namespace tandem
