// Recorded requests and responses of vLLM's own /v1/responses: bodies become the same chat
// requests, a model's output becomes the same items and events. Below TANDEM_GOLDENS there are more
// of them.

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "frontend/openai/responses_input.h"
#include "frontend/parsers/message_parser.h"
#include "tests/support/api_model.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/gzip/gzip_lines.h"
#include "tests/support/response_events.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

template <class Value = json>
std::vector<Value> ReadRows(const std::string& name) {
  const auto folders = GoldenFolders(TANDEM_GOLDEN_DIR, "", name);
  REQUIRE(folders.size() == 1);
  std::istringstream file(ReadGzipText(folders.front() + "/" + name));
  std::vector<Value> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(Value::parse(line));
  return rows;
}

// ---- Requests ----

// vLLM leaves parts and messages under their names in the Responses API.
json InChatWords(json messages) {
  for (json& message : messages) {
    message.erase("type");
    if (!message.contains("content") || !message["content"].is_array()) continue;
    for (json& part : message["content"]) {
      if (part["type"] == "input_text") part["type"] = "text";
    }
  }
  return messages;
}

StatusOr<ChatOfResponses> Convert(const json& body) {
  auto request = ParseResponsesRequest(Json::parse(body.dump()));
  if (!request.ok()) return request.status();
  return ToChatRequest(*request, JsonDocument());
}

TEST_CASE("Responses' input becomes vLLM's chat messages, or its refusal") {
  int num_compared = 0;
  for (const json& row : ReadRows("convert.jsonl")) {
    if (row["api"] != "responses") continue;
    CAPTURE(row["name"].get<std::string>());
    const auto converted = Convert(row["request"]);
    INFO(converted.status().ToString());
    ++num_compared;
    if (row["name"] == "image") {
      REQUIRE(converted.ok());
      const json& part = row["messages"][0]["content"][0];
      CHECK(converted->chat.images.at(0).url == part["image_url"].get<std::string>());
      CHECK(DumpJson(*converted->chat.messages) ==
            R"([{"role":"user","content":[{"type":"image"}]}])");
    } else if (row.contains("invalid")) {
      CHECK(converted.status().param() == "body.input");
    } else if (row.contains("error")) {
      CHECK(converted.status().param() == row["error"]["param"]);
      CHECK(converted.status().message() == row["error"]["message"]);
    } else {
      REQUIRE(converted.ok());
      const ChatRequest& chat = converted->chat;
      CHECK(json::parse(DumpJson(*chat.messages)) == InChatWords(row["messages"]));
      CHECK(chat.continue_final_message == row["continue_final_message"]);
      if (!row.contains("tools")) continue;
      CHECK(json::parse(DumpJson(*chat.tools)) == row["tools"]);
      CHECK(chat.tool_choice->at("function").at("name") == row["tool_choice"]["name"]);
    }
  }
  CHECK(num_compared == 21);
}

// ---- Responses ----

ApiModel MakeModel() {
  InputConfig config;
  config.parsers.tool_parser = FindToolParser("hermes");
  config.parsers.reasoning = FindReasoningFormat("qwen3");
  return ApiModel(std::move(config));
}

FinishReason FinishOf(const json& row) {
  return row["finish"] == "length" ? FinishReason::kLength : FinishReason::kStop;
}

// The deltas that the recorded outputs give.
std::vector<MessageDelta> Deltas(const json& row, const MessagePlan& plan) {
  MessageParser parser(plan.format);
  std::vector<MessageDelta> deltas;
  const auto add = [&](ParsedDelta parsed) {
    MessageDelta& delta = deltas.emplace_back();
    static_cast<MessageParts&>(delta) = std::move(parsed);
    if (!plan.include_reasoning) delta.reasoning.clear();
    for (ToolCallDelta& call : delta.tool_calls) {
      if (!call.name.empty()) call.id = "call-" + std::to_string(call.index);
    }
  };
  for (const json& chunk : row["chunks"]) add(parser.Feed(chunk[0].get<std::string>()));
  add(parser.End());
  deltas.back().finish_reason = FinishOf(row);
  return deltas;
}

std::string Run(const ApiModel::Prepared& prepared, const json& row) {
  std::string out;
  const auto writer = prepared.MakeWriter(&out);
  Usage usage;
  const json& recorded = row["response"]["usage"];
  usage.prompt_tokens = recorded["input_tokens"];
  usage.completion_tokens = recorded["output_tokens"];
  usage.reasoning_tokens = recorded["output_tokens_details"]["reasoning_tokens"].get<int64_t>();
  usage.cached_tokens = 0;
  for (MessageDelta& delta : Deltas(row, *prepared.processed.message)) {
    writer->WriteDelta(0, delta, usage);
  }
  writer->WriteEnd(usage);
  return out;
}

bool IsBlank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

std::string WithoutLastBlanks(std::string text) {
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

bool IsBlankMessage(const json& item) {
  return item["type"] == "message" && !item["content"].empty() &&
         IsBlank(item["content"][0]["text"].get<std::string>());
}

// Without what is random or belongs to the recording server's model and Python package.
json Comparable(const json& value) {
  if (value.is_array()) {
    json list = json::array();
    for (const json& item : value) {
      // vLLM's streams have messages of blanks between reasoning and a call, its bodies do not.
      if (item.is_object() && item.contains("role") && IsBlankMessage(item)) continue;
      list.push_back(Comparable(item));
    }
    return list;
  }
  if (!value.is_object()) return value;
  json object = json::object();
  for (const auto& [key, item] : value.items()) {
    if (item.is_null() || key == "id" || key == "item_id" || key == "call_id" ||
        key == "created_at" || key == "max_output_tokens" || key == "sequence_number") {
      continue;
    }
    // vLLM gives reasoning that has ended a status in streams only; ours always has one, because
    // the official client does not send reasoning with the status null back.
    if (key == "status" && value.value("type", "") == "reasoning" && item != "in_progress")
      continue;
    object[key] = Comparable(item);
    // Blanks between a message and a call are the call's layout; vLLM keeps them.
    if (key == "text" && item.is_string()) object[key] = WithoutLastBlanks(item);
  }
  return object;
}

// vLLM writes a call that is cut off as text in a body, and as a call in a stream; we do the
// latter.
bool EndsInCutCall(const json& row) { return row["name"] == "cut_args"; }

std::vector<std::string> Keys(const Json& object_in_order) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_in_order.items()) keys.push_back(key);
  return keys;
}

TEST_CASE("Responses in one body have vLLM's keys and values") {
  const ApiModel model = MakeModel();
  const std::vector<std::string> keys = Keys(ReadRows<Json>("responses.jsonl").front()["response"]);
  int num_compared = 0;
  for (const json& row : ReadRows("responses.jsonl")) {
    CAPTURE(row["name"].get<std::string>());
    const auto prepared = model.Prepare("/v1/responses", row["request"].dump());
    if (!prepared.ok()) {  // only a grammar can force a call
      CHECK(prepared.status().param() == "tool_choice");
      continue;
    }
    const std::string body = Run(*prepared, row);
    CHECK(Keys(Json::parse(body)) == keys);
    json ours = Comparable(json::parse(body));
    json theirs = Comparable(row["response"]);
    if (EndsInCutCall(row))
      theirs["output"] = Comparable(row["sse"].back()[1]["response"]["output"]);
    CHECK(ours == theirs);
    ++num_compared;
  }
  CHECK(num_compared >= 6);
}

// vLLM's events as ours: without messages of blanks, deltas of one item joined.
std::vector<ResponseEvent> Normalized(const std::vector<ResponseEvent>& events) {
  std::set<int> blank;
  for (const ResponseEvent& event : events) {
    if (event.type == "response.output_item.done" && IsBlankMessage(event.data["item"])) {
      blank.insert(event.data["output_index"].get<int>());
    }
  }
  std::vector<ResponseEvent> result;
  for (ResponseEvent event : events) {
    if (event.data.contains("output_index")) {
      const int index = event.data["output_index"];
      if (blank.count(index) > 0) continue;
      event.data["output_index"] =
          index - static_cast<int>(std::distance(blank.begin(), blank.lower_bound(index)));
    }
    const bool goes_on = event.data.contains("delta") && result.back().type == event.type;
    if (goes_on) {
      json& delta = result.back().data["delta"];
      delta = delta.get<std::string>() + event.data["delta"].get<std::string>();
    } else {
      event.data = Comparable(event.data);
      result.push_back(std::move(event));
    }
  }
  for (ResponseEvent& event : result) {
    if (event.type == "response.output_text.delta") {
      event.data["delta"] = WithoutLastBlanks(event.data["delta"]);
    }
  }
  return result;
}

TEST_CASE("Responses' streams have vLLM's events, and add up to the response in one body") {
  const ApiModel model = MakeModel();
  for (const json& row : ReadRows("responses.jsonl")) {
    CAPTURE(row["name"].get<std::string>());
    json request = row["request"];
    const auto prepared_body = model.Prepare("/v1/responses", request.dump());
    request["stream"] = true;
    const auto prepared = model.Prepare("/v1/responses", request.dump());
    REQUIRE(prepared.ok() == prepared_body.ok());
    if (!prepared.ok()) continue;
    const std::vector<ResponseEvent> events = ReadResponseEvents(Run(*prepared, row));
    const json assembled = AssembleResponse(events);
    CHECK(Comparable(assembled) == Comparable(json::parse(Run(*prepared_body, row))));
    std::vector<ResponseEvent> theirs;
    for (const json& event : row["sse"]) theirs.push_back({event[0], event[1]});
    const auto a = Normalized(events);
    const auto b = Normalized(theirs);
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      CAPTURE(i, a[i].type);
      CHECK(a[i].type == b[i].type);
      CHECK(a[i].data == b[i].data);
    }
  }
}

}  // namespace
}  // namespace tandem
