// Muse: messages with a recipient,
//   <|start|>assistant to=self<|message|>…<|eom|><|start|>assistant to=user<|message|>…<|eot|>
// The first header begins after "assistant", where the prompt ends. A message to a tool has calls:
//   <atem:function_calls>(<atem:invoke name="N">
//   (<atem:parameter name="K">V</atem:parameter>)*</atem:invoke>)*</atem:function_calls>
// A value is JSON where it can be read as that and the parameter is not a string. Only the
// recipient decides what a message is, so calls that a thought or an answer quotes are text. Text
// before any header is content.

#include <nlohmann/json.hpp>
#include <optional>

#include "common/strings.h"
#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongestRecipient = 256;
constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kMessage = "<|message|>";

enum class MuseForm { kMuse, kGlimmer };
enum class MessageKind { kReasoning, kContent, kDropped, kCalls };

MessageKind KindOf(std::string_view recipient, MuseForm form) {
  if (recipient == "self") return MessageKind::kReasoning;
  if (recipient == "user") return MessageKind::kContent;
  if (form == MuseForm::kGlimmer) {
    return recipient.empty() ? MessageKind::kContent : MessageKind::kCalls;
  }
  if (recipient.empty()) return MessageKind::kReasoning;
  if (recipient == "commentary") return MessageKind::kContent;
  return recipient == "developer" ? MessageKind::kDropped : MessageKind::kCalls;
}

// The offset after `word`, where it stands at `offset`; else 0.
Parse<size_t> WordEnd(TextSource& text, size_t offset, std::string_view word) {
  for (size_t i = 0; i < word.size(); ++i) {
    const int byte = co_await text.Peek(offset + i);
    if (byte != static_cast<unsigned char>(word[i])) co_return 0;
  }
  co_return offset + word.size();
}

// The header that begins here, up to and with <|message|>, consumed: its recipient. nullopt: none
// begins here, and nothing is consumed.
Parse<std::optional<std::string>> TakeHeader(TextSource& text) {
  size_t offset = 0;
  const size_t start = co_await WordEnd(text, 0, kStart);
  if (start > 0) {
    offset = co_await ScanBlanks(text, start);
    const size_t role = co_await WordEnd(text, offset, "assistant");
    if (role > 0) offset = role;
  }
  offset = co_await ScanBlanks(text, offset);
  std::string recipient;
  const size_t to = co_await WordEnd(text, offset, "to=");
  if (to > 0) {
    offset = to;
    int byte = co_await text.Peek(offset);
    while (byte != '<' && !IsBlank(byte) && byte != kEndOfText &&
           recipient.size() < kLongestRecipient) {
      recipient += static_cast<char>(byte);
      byte = co_await text.Peek(++offset);
    }
  }
  const size_t end = co_await WordEnd(text, offset, kMessage);
  std::optional<std::string> header;
  if (end > 0) {
    text.Skip(end);
    header = std::move(recipient);
  }
  co_return header;
}

// Copies the text of a message up to its end or the header of the next one; that header's
// recipient, or nullopt where there is none (yet). A header may lack the end before it.
Parse<std::optional<std::string>> CopyBody(TextSource& text, TextFunction add) {
  const Markers markers = {"<|eom|>", "<|eot|>", kStart, kMessage, " to=", "\nto="};
  for (;;) {
    const int found = co_await CopyUntil(text, markers, add);
    if (found < 2) co_return std::nullopt;
    const std::string_view marker = markers[static_cast<size_t>(found)];
    text.Unskip(marker.size());
    std::optional<std::string> header = co_await TakeHeader(text);
    if (header) co_return header;
    text.Skip(marker.size());
    if (found >= 4) add(marker);
  }
}

// A model that is shown "get_weather.*" calls "get_weather.get_weather".
std::string OwnName(const ToolSet& tools, std::string name) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos || tools.Has(name)) return name;
  const std::string head = name.substr(0, dot);
  return head == std::string_view(name).substr(dot + 1) && tools.Has(head) ? head : name;
}

bool IsString(const ToolSet& tools, std::string_view tool, std::string_view parameter) {
  const Json* const schema = tools.SchemaOf(tool, parameter);
  return schema != nullptr && schema->is_object() && schema->value("type", Json()) == "string";
}

// Calls of one message, each passed on when it is complete.
class MuseCalls {
 public:
  MuseCalls(const ToolParserInput& in, MuseForm form) : in_(in), form_(form) {}

  void Add(std::string_view part) {
    text_ += part;
    for (;;) {
      constexpr std::string_view kBegin = "<atem:invoke", kEnd = "</atem:invoke>";
      const size_t begin = text_.find(kBegin, searched_);
      if (begin == std::string::npos) {
        searched_ = text_.size() - std::min(text_.size(), kBegin.size());
        return;
      }
      const size_t end = text_.find(kEnd, std::max(begin, end_searched_));
      if (end == std::string::npos) {
        searched_ = begin;
        end_searched_ = text_.size() - std::min(text_.size(), kEnd.size());
        return;
      }
      AddCall(std::string_view(text_).substr(begin, end - begin));
      text_.erase(0, end + kEnd.size());
      searched_ = end_searched_ = 0;
    }
  }

 private:
  static std::string_view NameIn(std::string_view head) {
    constexpr std::string_view kName = "name=\"";
    const size_t begin = head.find(kName);
    if (begin == std::string_view::npos) return {};
    head.remove_prefix(begin + kName.size());
    return head.substr(0, head.find('"'));
  }

  void AddCall(std::string_view invoke) {
    const std::string_view written = NameIn(invoke.substr(0, invoke.find('>')));
    if (written.empty()) return;
    const std::string name = OwnName(in_.tools, std::string(written));
    std::string arguments = "{";
    constexpr std::string_view kBegin = "<atem:parameter", kEnd = "</atem:parameter>";
    for (;;) {
      const size_t begin = invoke.find(kBegin);
      if (begin == std::string_view::npos) break;
      invoke.remove_prefix(begin + kBegin.size());
      const size_t head = invoke.find('>');
      const size_t end = invoke.find(kEnd);
      if (end == std::string_view::npos || head > end) break;
      const std::string key(NameIn(invoke.substr(0, head)));
      if (arguments.size() > 1) arguments += ", ";
      arguments += QuoteJson(key) + ": ";
      arguments += ValueOf(name, key, invoke.substr(head + 1, end - head - 1));
      invoke.remove_prefix(end + kEnd.size());
    }
    in_.sink.AddCall(name, arguments + "}");
  }

  std::string ValueOf(const std::string& tool, const std::string& key, std::string_view text) {
    if (form_ == MuseForm::kMuse && IsString(in_.tools, tool, key)) return QuoteJson(text);
    const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded()) return QuoteJson(text);
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  const ToolParserInput in_;
  const MuseForm form_;
  std::string text_;
  size_t searched_ = 0;      // no call begins before this
  size_t end_searched_ = 0;  // nor does the first one end
};

Parse<> ParseMuseMessages(ToolParserInput in, MuseForm form) {
  std::optional<std::string> recipient = co_await TakeHeader(in.text);
  if (!recipient) {
    const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
    recipient = co_await CopyBody(in.text, add_content);
  }
  for (;;) {
    if (!recipient) {
      // What stands between messages is dropped.
      recipient = co_await CopyBody(in.text, [](std::string_view) {});
      const int next = co_await in.text.Peek();
      if (!recipient && next == kEndOfText) co_return;
      continue;
    }
    const MessageKind kind = KindOf(*recipient, form);
    *in.in_reasoning = kind == MessageKind::kReasoning;
    MuseCalls calls(in, form);
    recipient = co_await CopyBody(in.text, [&](std::string_view part) {
      if (kind == MessageKind::kReasoning) in.sink.AddReasoning(part);
      if (kind == MessageKind::kContent) in.sink.AddContent(part);
      if (kind == MessageKind::kCalls) calls.Add(part);
    });
    *in.in_reasoning = false;
  }
}

}  // namespace

Parse<> ParseMuse(ToolParserInput in) { return ParseMuseMessages(in, MuseForm::kMuse); }
Parse<> ParseMuseGlimmer(ToolParserInput in) { return ParseMuseMessages(in, MuseForm::kGlimmer); }

}  // namespace tandem
