#include "frontend/parsers/parse_steps.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/parsers/message_sink.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 256;

// Where a JSON value ends, byte by byte.
class JsonEnd {
 public:
  enum class Step { kInside, kLast, kAfter };  // kAfter: the byte is not part of the value

  Step Push(int byte) {
    if (in_string_) return PushInString(byte);
    if (byte == '"' && !in_scalar_) {
      in_string_ = true;
      return Step::kInside;
    }
    if (byte == '{' || byte == '[') {
      if (++depth_ > kMaxDepth) return Step::kAfter;
      return Step::kInside;
    }
    if (depth_ == 0) {
      if (IsBlank(byte) || byte == ',' || byte == '}' || byte == ']') return Step::kAfter;
      in_scalar_ = true;
      return Step::kInside;
    }
    if (byte == '}' || byte == ']') return --depth_ == 0 ? Step::kLast : Step::kInside;
    return Step::kInside;
  }
  bool in_string() const { return in_string_; }

 private:
  Step PushInString(int byte) {
    if (escaped_) {
      escaped_ = false;
    } else if (byte == '\\') {
      escaped_ = true;
    } else if (byte == '"') {
      in_string_ = false;
      if (depth_ == 0) return Step::kLast;
    }
    return Step::kInside;
  }

  int depth_ = 0;
  bool in_string_ = false;
  bool in_scalar_ = false;
  bool escaped_ = false;
};

void AddEscapedControl(int byte, const TextFunction& add) {
  constexpr std::string_view kHex = "0123456789abcdef";
  if (byte == '\n') return add("\\n");
  if (byte == '\t') return add("\\t");
  if (byte == '\r') return add("\\r");
  const auto bits = static_cast<size_t>(byte);
  const std::array<char, 6> text = {'\\', 'u', '0', '0', kHex[bits >> 4], kHex[bits & 15]};
  add({text.data(), text.size()});
}

size_t Utf8Length(unsigned char first) {
  if (first < 0xc0) return 1;
  if (first < 0xe0) return 2;
  return first < 0xf0 ? 3 : 4;
}

std::optional<std::string> StringOf(std::string_view json) {
  const Json value = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

// Consumes what follows a value in an object: more keys and values, and the '}'. Stops where the
// text is neither, so that a missing brace costs nothing that comes later.
Parse<> SkipObjectRest(TextSource& text) {
  for (;;) {
    size_t offset = co_await ScanBlanks(text, 0);
    const int byte = co_await text.Peek(offset);
    if (byte == '}') text.Skip(offset + 1);
    if (byte != ',') co_return;
    offset = co_await ScanBlanks(text, offset + 1);
    const std::optional<size_t> key_end = co_await ScanJson(text, offset);
    if (!key_end) co_return;
    offset = co_await ScanBlanks(text, *key_end);
    const int colon = co_await text.Peek(offset);
    if (colon != ':') co_return;
    offset = co_await ScanBlanks(text, offset + 1);
    const std::optional<size_t> value_end = co_await ScanJson(text, offset);
    if (!value_end) co_return;
    text.Skip(*value_end);
  }
}

const Json* ArgumentsOf(const Json& call) {
  for (const char* key : {"arguments", "parameters"}) {
    if (const auto it = call.find(key); it != call.end()) return &*it;
  }
  return nullptr;
}

}  // namespace

Parse<int> CopyUntil(TextSource& text, Markers markers, TextFunction add) {
  std::string first_bytes;
  for (const std::string_view marker : markers) first_bytes += marker.front();
  while (co_await text.Peek() != kEndOfText) {
    const std::string_view pending = text.pending();
    const size_t plain = std::min(pending.find_first_of(first_bytes), pending.size());
    if (plain > 0) {
      add(pending.substr(0, plain));
      text.Skip(plain);
      continue;
    }
    for (size_t i = 0; i < markers.size(); ++i) {
      if (co_await text.TrySkip(markers[i])) co_return static_cast<int>(i);
    }
    // A whole character, so that what is added is text.
    size_t size = Utf8Length(static_cast<unsigned char>(text.pending().front()));
    if (co_await text.Peek(size - 1) == kEndOfText) size = text.pending().size();
    add(text.pending().substr(0, size));
    text.Skip(size);
  }
  co_return kNoMarker;
}

Parse<TextUntil> TakeUntil(TextSource& text, Markers markers) {
  TextUntil taken;
  taken.marker = co_await CopyUntil(text, std::move(markers),
                                    [&](std::string_view part) { taken.text += part; });
  co_return taken;
}

Parse<> CopyRest(TextSource& text, TextFunction add) {
  for (;;) {
    const int byte = co_await text.Peek();
    if (byte == kEndOfText) co_return;
    add(text.pending());
    text.Skip(text.pending().size());
  }
}

Parse<size_t> ScanBlanks(TextSource& text, size_t offset) {
  for (;; ++offset) {
    const int byte = co_await text.Peek(offset);
    if (!IsBlank(byte)) co_return offset;
  }
}

Parse<std::optional<size_t>> ScanJson(TextSource& text, size_t offset) {
  JsonEnd end;
  for (;; ++offset) {
    const int byte = co_await text.Peek(offset);
    if (byte == kEndOfText) co_return std::nullopt;
    const JsonEnd::Step step = end.Push(byte);
    if (step == JsonEnd::Step::kLast) co_return offset + 1;
    if (step == JsonEnd::Step::kAfter) co_return offset;
  }
}

Parse<bool> CopyJson(TextSource& text, TextFunction add) {
  JsonEnd end;
  for (;;) {
    const int byte = co_await text.Peek();
    if (byte == kEndOfText) co_return false;
    const bool in_string = end.in_string();
    const JsonEnd::Step step = end.Push(byte);
    if (step == JsonEnd::Step::kAfter) co_return true;
    if (in_string && byte < 0x20) {
      AddEscapedControl(byte, add);
    } else {
      add(text.pending().substr(0, 1));
    }
    text.Skip(1);
    if (step == JsonEnd::Step::kLast) co_return true;
  }
}

Parse<ScannedCall> ScanCall(TextSource& text, size_t offset, CallKeys keys) {
  using Kind = ScannedCall::Kind;
  ScannedCall call;
  if (co_await text.Peek(offset) != '{') co_return call;
  bool has_name = false;
  bool has_arguments = false;
  for (++offset;;) {
    offset = co_await ScanBlanks(text, offset);
    const int byte = co_await text.Peek(offset);
    if (byte == kEndOfText) {
      call.kind = Kind::kCut;
      co_return call;
    }
    if (byte == '}') break;
    if (byte != '"') co_return call;
    const std::optional<size_t> key_end = co_await ScanJson(text, offset);
    if (!key_end) {
      call.kind = Kind::kCut;
      co_return call;
    }
    const std::string key(text.pending().substr(offset + 1, *key_end - offset - 2));
    offset = co_await ScanBlanks(text, *key_end);
    const int colon = co_await text.Peek(offset);
    if (colon == kEndOfText) call.kind = Kind::kCut;
    if (colon != ':') co_return call;
    offset = co_await ScanBlanks(text, offset + 1);
    const bool is_arguments = key == keys.arguments || key == keys.other_arguments;
    if (is_arguments && !has_arguments) {
      call.arguments = offset;
      has_arguments = true;
      if (has_name) {
        call.kind = co_await text.Peek(offset) == kEndOfText ? Kind::kCut : Kind::kArguments;
        co_return call;
      }
    }
    const std::optional<size_t> value_end = co_await ScanJson(text, offset);
    if (!value_end) {
      call.kind = Kind::kCut;
      co_return call;
    }
    if (*value_end == offset) co_return call;
    if (key == keys.name) {
      const auto name = StringOf(text.pending().substr(offset, *value_end - offset));
      if (!name) co_return call;
      call.name = *name;
      has_name = true;
    } else if (!keys.id.empty() && key == keys.id) {
      const auto id = StringOf(text.pending().substr(offset, *value_end - offset));
      if (id) call.id = *id;
    }
    offset = co_await ScanBlanks(text, *value_end);
    const int next = co_await text.Peek(offset);
    if (next == ',') ++offset;
    if (next == kEndOfText) call.kind = Kind::kCut;
    if (next != ',' && next != '}') co_return call;
  }
  call.end = offset + 1;
  if (has_name) call.kind = has_arguments ? Kind::kWhole : Kind::kName;
  co_return call;
}

Parse<> CopyCall(TextSource& text, ScannedCall call, StringArguments strings, MessageSink* sink) {
  sink->BeginCall(call.name, call.id);
  if (call.kind == ScannedCall::Kind::kName) {
    sink->AddArguments("{}");
    text.Skip(call.end);
    co_return;
  }
  text.Skip(call.arguments);
  const bool is_string = co_await text.Peek() == '"';
  if (is_string && strings == StringArguments::kUnquoted) {
    std::string json;
    const bool whole = co_await CopyJson(text, [&](std::string_view part) { json += part; });
    const auto content = StringOf(json);
    sink->AddArguments(whole && content ? *content : json);
  } else {
    const bool whole =
        co_await CopyJson(text, [sink](std::string_view part) { sink->AddArguments(part); });
    if (!whole) co_return;
  }
  co_await SkipObjectRest(text);
}

Parse<bool> CopyCallList(TextSource& text, StringArguments strings, MessageSink* sink,
                         CallKeys keys) {
  size_t offset = 1;  // the '['
  for (;;) {
    offset = co_await ScanBlanks(text, offset);
    const ScannedCall call = co_await ScanCall(text, offset, keys);
    if (call.kind == ScannedCall::Kind::kNone || call.kind == ScannedCall::Kind::kCut) {
      co_return false;
    }
    co_await CopyCall(text, call, strings, sink);
    offset = co_await ScanBlanks(text, 0);
    const int next = co_await text.Peek(offset);
    if (next == ',') {
      ++offset;
      continue;
    }
    if (next == ']') text.Skip(offset + 1);
    co_return next == ']';
  }
}

bool AddCallsOf(std::string_view json_list, StringArguments strings, MessageSink* sink) {
  const Json list = Json::parse(json_list, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array() || list.empty()) return false;
  for (const Json& call : list) {
    if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
    if (ArgumentsOf(call) == nullptr) return false;
  }
  for (const Json& call : list) {
    const Json& arguments = *ArgumentsOf(call);
    const bool unquote = arguments.is_string() && strings == StringArguments::kUnquoted;
    sink->AddCall(call["name"].get<std::string>(),
                  unquote ? arguments.get<std::string>()
                          : arguments.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return true;
}

}  // namespace tandem
