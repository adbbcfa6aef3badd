#include "tests/support/response_events.h"

#include <map>
#include <memory>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

// One item while its events come.
class OpenItem {
 public:
  explicit OpenItem(const ResponseEvent& added) : item_(added.data["item"]) {
    CHECK(item_["status"] == "in_progress");
    is_call_ = item_["type"] == "function_call" || item_["type"] == "custom_tool_call";
  }

  void Add(const ResponseEvent& event) {
    CHECK(event.data["item_id"] == item_["id"]);
    if (event.type == "response.content_part.added") {
      CHECK_FALSE(is_call_);
      CHECK(event.data["part"]["text"] == "");
      has_part_ = true;
    } else if (event.type.ends_with(".delta")) {
      CHECK((is_call_ || has_part_));
      CHECK_FALSE(is_done_);
      text_ += event.data["delta"].get<std::string>();
      for (const json& entry : event.data.value("logprobs", json::array())) {
        logprobs_.push_back(entry);
      }
    } else if (event.type == "response.content_part.done") {
      CHECK(is_done_);
      CHECK(event.data["part"] == item_part_);
    } else {
      is_done_ = true;
      const char* const key = item_["type"] == "function_call"      ? "arguments"
                              : item_["type"] == "custom_tool_call" ? "input"
                                                                    : "text";
      CHECK(event.data[key] == text_);
      if (is_call_) {
        CHECK(event.data["name"] == item_["name"]);
        item_[key] = text_;
      } else {
        item_part_ = {{"text", text_}, {"type", "reasoning_text"}};
        if (item_["type"] == "message") {
          item_part_ = {{"text", text_}, {"type", "output_text"}, {"annotations", json::array()}};
          item_part_["logprobs"] = logprobs_.empty() ? json(nullptr) : logprobs_;
        }
        item_["content"] = json::array({item_part_});
      }
    }
  }

  // The item as its events describe it.
  json Finish(const json& done) {
    CHECK(is_done_);
    item_["status"] = done["status"];
    CHECK(done == item_);
    return item_;
  }

 private:
  json item_;
  json item_part_;
  json logprobs_ = json::array();
  std::string text_;
  bool is_call_ = false;
  bool has_part_ = false;
  bool is_done_ = false;
};

}  // namespace

std::vector<ResponseEvent> ReadResponseEvents(std::string_view stream) {
  std::vector<ResponseEvent> events;
  while (!stream.empty()) {
    const size_t line_end = stream.find('\n');
    const size_t end = stream.find("\n\n");
    REQUIRE(end != std::string_view::npos);
    REQUIRE(stream.substr(0, 7) == "event: ");
    REQUIRE(stream.substr(line_end + 1, 6) == "data: ");
    ResponseEvent event = {std::string(stream.substr(7, line_end - 7)),
                           json::parse(stream.substr(line_end + 7, end - line_end - 7))};
    CHECK(event.data["type"] == event.type);
    CHECK(event.data["sequence_number"] == events.size());
    events.push_back(std::move(event));
    stream.remove_prefix(end + 2);
  }
  return events;
}

json AssembleResponse(const std::vector<ResponseEvent>& events) {
  REQUIRE(events.size() >= 3);
  CHECK(events[0].type == "response.created");
  CHECK(events[1].type == "response.in_progress");
  CHECK(events[0].data["response"] == events[1].data["response"]);
  json output = json::array();
  std::unique_ptr<OpenItem> open;
  for (size_t i = 2; i + 1 < events.size(); ++i) {
    const ResponseEvent& event = events[i];
    CAPTURE(i, event.type);
    CHECK(event.data["output_index"] == output.size());
    if (event.type == "response.output_item.added") {
      REQUIRE(open == nullptr);
      open = std::make_unique<OpenItem>(event);
      continue;
    }
    REQUIRE(open != nullptr);
    if (event.type == "response.output_item.done") {
      output.push_back(open->Finish(event.data["item"]));
      open.reset();
    } else {
      open->Add(event);
    }
  }
  CHECK(open == nullptr);
  json response = events.back().data["response"];
  CHECK(events.back().type ==
        (response["status"] == "completed" ? "response.completed" : "response.incomplete"));
  CHECK(response["output"] == output);
  return response;
}

}  // namespace tandem
