// Recorded answers of vLLM to /v1/chat/completions (tests/golden/api_events/chat.jsonl.gz): a
// model's text becomes the same response, and as a stream events that add up to the recorded ones.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "frontend/parsers/message_parser.h"
#include "tests/support/api_model.h"
#include "tests/support/gzip/gzip_lines.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

std::vector<json> ReadRows() {
  std::vector<json> rows = ReadGzipLines(TANDEM_GOLDEN_DIR "/api_events/chat.jsonl.gz");
  REQUIRE(rows.size() == 21);
  return rows;
}

ApiModel MakeModel() {
  InputConfig config;
  config.parsers = ChooseParsers("hermes", "qwen3", "").value();
  return ApiModel(std::move(config));
}

// What the parsers and the engine make of one recorded output.
MessageDelta DeltaOf(ParsedDelta parsed, const MessagePlan& plan, int* num_calls) {
  MessageDelta delta;
  static_cast<MessageParts&>(delta) = std::move(parsed);
  if (!plan.include_reasoning) delta.reasoning.clear();
  for (ToolCallDelta& call : delta.tool_calls) {
    if (call.index == *num_calls) call.id = "<tool:" + std::to_string((*num_calls)++) + ">";
  }
  return delta;
}

std::string Answer(const ApiModel& model, const json& row, bool stream) {
  json body = row["request"];
  body["stream"] = stream;
  if (!stream) body.erase("stream_options");
  const auto prepared = model.Prepare("/v1/chat/completions", body.dump());
  INFO(prepared.status().ToString());
  REQUIRE(prepared.ok());
  const MessagePlan& plan = *prepared->processed.message;
  std::string out;
  const auto writer = prepared->MakeWriter(&out);
  Usage usage;
  usage.prompt_tokens = 13;
  usage.reasoning_tokens =
      row["response"]["usage"]["completion_tokens_details"]["reasoning_tokens"].get<int64_t>();
  MessageParser parser(plan.format);
  int num_calls = 0;
  for (const json& chunk : row["chunks"]) {
    MessageDelta delta = DeltaOf(parser.Feed(chunk[0].get<std::string>()), plan, &num_calls);
    delta.token_ids = chunk[1].get<std::vector<TokenId>>();
    usage.completion_tokens += std::ssize(delta.token_ids);
    writer->WriteDelta(0, delta, usage);
  }
  MessageDelta last = DeltaOf(parser.End(), plan, &num_calls);
  const bool called = num_calls > 0 && plan.format.choice != MessageFormat::Choice::kNamed;
  last.finish_reason = row["finish"] == "length" ? FinishReason::kLength
                       : called                  ? FinishReason::kToolCalls
                                                 : FinishReason::kStop;
  if (row["stop_reason"].is_string()) last.stop_reason = row["stop_reason"].get<std::string>();
  if (row["stop_reason"].is_number()) last.stop_reason = row["stop_reason"].get<int64_t>();
  writer->WriteDelta(0, last, usage);
  writer->WriteEnd(usage);
  return out;
}

std::string WithoutLastBlanks(std::string text) {
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

// Without what is random, or of another server. Blanks before a call are the call's layout, which
// vLLM keeps.
json Comparable(json message) {
  for (const char* text : {"content", "reasoning"}) {
    if (message.value(text, json()).is_string()) {
      message[text] = WithoutLastBlanks(message[text]);
    } else {
      message.erase(text);
    }
  }
  if (message.value("content", "x").empty()) message.erase("content");
  for (json& call : message["tool_calls"]) call.erase("id");
  return message;
}

// The message that a stream's events add up to, and how it ended.
struct Sum {
  json message = {{"role", "assistant"}, {"content", ""}, {"reasoning", ""}};
  json finish_reason;
  json stop_reason;
  json usage;

  explicit Sum(const std::vector<json>& events) {
    for (const json& event : events) {
      if (event.contains("usage") && !event["usage"].is_null()) usage = event["usage"];
      if (event["choices"].empty()) continue;
      const json& choice = event["choices"][0];
      for (const char* text : {"content", "reasoning"}) {
        const json part = choice["delta"].value(text, json());
        if (part.is_string())
          message[text] = message[text].get<std::string>() + part.get<std::string>();
      }
      for (const json& call : choice["delta"].value("tool_calls", json::array())) AddCall(call);
      if (choice["finish_reason"].is_null()) continue;
      finish_reason = choice["finish_reason"];
      stop_reason = choice["stop_reason"];
    }
    if (message["reasoning"] == "") message.erase("reasoning");
  }

  void AddCall(const json& call) {
    json& calls = message["tool_calls"];
    if (call["index"] == calls.size()) {
      calls.push_back({{"type", "function"},
                       {"function", {{"name", call["function"]["name"]}, {"arguments", ""}}}});
    }
    std::string& arguments = calls.back()["function"]["arguments"].get_ref<std::string&>();
    arguments += call["function"].value("arguments", "");
  }
};

std::vector<json> RecordedEvents(const json& row) {
  std::vector<json> events(row["sse"].begin(), row["sse"].end());
  events.pop_back();  // [DONE]
  return events;
}

std::vector<json> Events(const std::string& stream) {
  std::vector<json> events;
  for (const std::string& body : EventBodies(stream)) events.push_back(json::parse(body));
  return events;
}

// vLLM's body shows a call that is cut off as text, its stream as a call; ours is a call in both.
bool EndsInCutCall(const json& row) { return row["name"] == "cut_args"; }

TEST_CASE("a chat's response is the recorded one") {
  const ApiModel model = MakeModel();
  for (const json& row : ReadRows()) {
    CAPTURE(row["name"].get<std::string>());
    json ours = json::parse(Answer(model, row, false));
    json theirs = row["response"];
    if (EndsInCutCall(row)) theirs["choices"][0]["message"] = Sum(RecordedEvents(row)).message;
    const json ours_message = Comparable(ours["choices"][0]["message"]);
    const json theirs_message = Comparable(theirs["choices"][0]["message"]);
    for (const auto& [key, value] : theirs_message.items()) {
      CAPTURE(key);
      CHECK(ours_message.value(key, json()) == value);
    }
    CHECK(ours_message.value("tool_calls", json()).size() ==
          theirs["choices"][0]["message"].value("tool_calls", json()).size());
    for (json* answer : {&ours, &theirs}) {
      (*answer)["choices"][0].erase("message");
      // The prompt's tokens are those of the recording server's model.
      for (const char* key : {"id", "created", "system_fingerprint", "prompt_token_ids"}) {
        answer->erase(key);
      }
    }
    CHECK(ours == theirs);
  }
}

// vLLM's body shows a call that is no JSON as text, its stream loses it; ours is the text in both.
bool LosesText(const json& row) { return row["name"] == "bad_call"; }

TEST_CASE("a chat's events add up to the recorded ones") {
  const ApiModel model = MakeModel();
  for (const json& row : ReadRows()) {
    CAPTURE(row["name"].get<std::string>());
    const Sum ours(Events(Answer(model, row, true)));
    Sum theirs(RecordedEvents(row));
    if (LosesText(row)) {
      theirs.message["content"] = row["response"]["choices"][0]["message"]["content"];
    }
    CHECK(Comparable(ours.message) == Comparable(theirs.message));
    CHECK(ours.finish_reason == theirs.finish_reason);
    CHECK(ours.stop_reason == theirs.stop_reason);
    CHECK(ours.usage == theirs.usage);
  }
}

}  // namespace
}  // namespace tandem
