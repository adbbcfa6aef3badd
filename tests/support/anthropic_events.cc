#include "tests/support/anthropic_events.h"

#include <string>
#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

using nlohmann::json;

// The next event, taken from the front of the stream.
std::pair<std::string, json> NextEvent(std::string_view* stream) {
  const size_t end = stream->find("\n\n");
  CHECK(end != std::string_view::npos) << "no whole event: " << *stream;
  const std::string_view event = stream->substr(0, end);
  stream->remove_prefix(end + 2);
  const size_t line_end = event.find('\n');
  CHECK(event.substr(0, 7) == "event: " && line_end != std::string_view::npos) << event;
  const std::string_view data = event.substr(line_end + 1);
  CHECK(data.substr(0, 6) == "data: " && data.find('\n') == std::string_view::npos) << event;
  json body = json::parse(data.substr(6), nullptr, false);
  const std::string name(event.substr(7, line_end - 7));
  CHECK(!body.is_discarded() && body["type"] == name) << event;
  return {name, std::move(body)};
}

void AddDelta(const json& delta, json* block) {
  const std::string type = delta["type"];
  const auto append = [&](const char* key, const char* from) {
    (*block)[key] = block->value(key, "") + delta[from].get<std::string>();
  };
  if (type == "thinking_delta") {
    CHECK(!block->contains("signature")) << "thinking after its signature";
    append("thinking", "thinking");
  } else if (type == "text_delta") {
    append("text", "text");
  } else if (type == "input_json_delta") {
    append("input_json", "partial_json");
  } else {
    CHECK(type == "signature_delta") << type;
    append("signature", "signature");
  }
}

}  // namespace

json PutTogether(std::string_view stream) {
  json message = {{"content", json::array()}};
  bool open = false;
  bool stopped = false;
  while (!stream.empty()) {
    const auto [name, event] = NextEvent(&stream);
    CHECK(!stopped) << "an event after message_stop: " << name;
    CHECK((name == "message_start") != message.contains("start")) << name;
    if (name == "message_start") {
      message["start"] = event["message"];
    } else if (name == "content_block_start") {
      CHECK(!open && event["index"] == message["content"].size()) << event.dump();
      message["content"].push_back(event["content_block"]);
      open = true;
    } else if (name == "content_block_delta" || name == "content_block_stop") {
      CHECK(open && event["index"] == message["content"].size() - 1) << event.dump();
      if (name == "content_block_delta") AddDelta(event["delta"], &message["content"].back());
      if (name == "content_block_stop") open = false;
    } else if (name == "message_delta") {
      CHECK(!open && !message.contains("usage")) << event.dump();
      message.update(event["delta"]);
      message["usage"] = event["usage"];
    } else {
      CHECK(name == "message_stop" && message.contains("usage")) << name;
      stopped = true;
    }
  }
  CHECK(stopped) << "the stream has no message_stop";
  return message;
}

}  // namespace tandem
