// Recorded answers of vLLM to /v1/messages (tests/golden/api_events, and the larger set of the
// same name in TANDEM_GOLDENS): the model's text becomes the same response, and as a stream the
// same message; an Anthropic body becomes the same chat request.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "frontend/anthropic/chat_body.h"
#include "frontend/anthropic/messages_request.h"
#include "frontend/api/messages.h"
#include "frontend/openai/chat_request.h"
#include "frontend/parsers/message_parser.h"
#include "tests/support/anthropic_events.h"
#include "tests/support/api_model.h"
#include "tests/support/files/golden_folders.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

// The rows of a file in the small set, or of its namesake in the large one.
std::vector<json> ReadRows(const std::string& small, const std::string& large) {
  const auto more = WholeGoldens();
  const std::string path =
      more ? *more + "/api_events/" + large : TANDEM_GOLDEN_DIR "/api_events/" + small;
  CAPTURE(path);
  std::ifstream file(path);
  std::vector<json> rows;
  for (std::string line; std::getline(file, line);) {
    json row = json::parse(line);
    if (row.value("api", "messages") == "messages") rows.push_back(std::move(row));
  }
  REQUIRE(rows.size() >= 10);
  return rows;
}

// ---- Answers ----

// The model's text, piece by piece, through the parsers of the recording to the writer.
std::string Respond(const json& row, bool stream) {
  const ApiModel model;
  auto request = ParseMessagesRequest(Json::parse(row["request"].dump()));
  REQUIRE(request.ok());
  auto body = ChatBodyOf(std::move(*request), {});
  REQUIRE(body.ok());
  const Json tools = body->value("tools", Json::array());
  const ToolSet tool_set(tools);
  const bool named = body->contains("tool_choice") && (*body)["tool_choice"].is_object();
  MessageFormat format;
  format.reasoning = FindReasoningFormat("qwen3");
  format.tool_parser = FindToolParser("hermes");
  format.tools = &tool_set;
  format.parallel_calls = body->value("parallel_tool_calls", true);
  MessageParser parser(format);

  std::string out;
  WriterInput input;
  input.head = {"chatcmpl-0", 0, "m", ""};
  input.stream = stream;
  input.out = &out;
  const auto writer = model.MakeCall("/v1/messages")->MakeWriter(std::move(input));
  Usage usage{13, 0, std::nullopt, 0};
  int num_calls = 0;
  const auto write = [&](ParsedDelta parsed, bool last) {
    MessageDelta delta;
    static_cast<MessageParts&>(delta) = std::move(parsed);
    for (ToolCallDelta& call : delta.tool_calls) {
      if (call.index == num_calls) call.id = "call-" + std::to_string(num_calls++);
    }
    if (last) {
      const bool cut = row["finish"] == "length";
      const bool calls = num_calls > 0 && !named;
      delta.finish_reason = cut     ? FinishReason::kLength
                            : calls ? FinishReason::kToolCalls
                                    : FinishReason::kStop;
      if (row["stop_reason"].is_string()) delta.stop_reason = row["stop_reason"].get<std::string>();
    }
    writer->WriteDelta(0, delta, usage);
  };
  for (const json& chunk : row["chunks"]) {
    usage.completion_tokens += static_cast<int64_t>(chunk[1].size());
    write(parser.Feed(chunk[0].get<std::string>()), false);
  }
  write(parser.End(), true);
  writer->WriteEnd(usage);
  return out;
}

// Ids and signatures are random: only their presence counts. Blanks in front of a call belong to
// the format of calls; the recording keeps them.
json Normalized(json message) {
  int num_calls = 0;
  for (json& block : message["content"]) {
    if (block["type"] == "text") {
      std::string text = block["text"];
      text.resize(text.find_last_not_of(" \n") + 1);
      block["text"] = text;
    }
    if (block["type"] == "thinking") {
      CHECK(block["signature"].get<std::string>().size() >= 7);
      block["signature"] = "";
    }
    if (block["type"] == "tool_use") block["id"] = num_calls++;
  }
  return message;
}

TEST_CASE("Messages: a text becomes the recorded response") {
  for (const json& row : ReadRows("messages.jsonl", "messages.jsonl")) {
    CAPTURE(row["name"]);
    json ours = Normalized(json::parse(Respond(row, false)));
    if (row["name"] == "cut_args") {
      // The recording gives the raw text here and a call that is cut off in the stream; ours is the
      // call in both.
      CHECK(ours["content"].back()["type"] == "tool_use");
      CHECK(ours["content"].back()["input"] == json::object());
      ours["content"] = row["response"]["content"];
      ours = Normalized(ours);
    }
    CHECK(ours == Normalized(row["response"]));
  }
}

TEST_CASE("Messages: the stream of a text adds up to its response") {
  for (const json& row : ReadRows("messages.jsonl", "messages.jsonl")) {
    CAPTURE(row["name"]);
    const json whole = Normalized(json::parse(Respond(row, false)));
    json stream = PutTogether(Respond(row, true));
    CHECK(stream["start"] == row["sse"].front()[1]["message"]);
    const json& end = row["sse"][row["sse"].size() - 2][1];
    CHECK(stream["stop_reason"] == end["delta"]["stop_reason"]);
    CHECK(stream["stop_sequence"] == end["delta"]["stop_sequence"]);
    CHECK(stream["usage"] == end["usage"]);
    for (json& block : stream["content"]) {
      if (block["type"] != "tool_use") continue;
      const json input = json::parse(block.value("input_json", ""), nullptr, false);
      block["input"] = input.is_object() ? input : json::object();
      block.erase("input_json");
    }
    // A response has at least one block, a stream may have none.
    if (row["name"] == "empty") {
      CHECK(stream["content"].empty());
    } else {
      CHECK(Normalized(stream)["content"] == whole["content"]);
    }
  }
}

// ---- Requests ----

// Arguments are a text in the recording and an object here.
json WithParsedArguments(json chat) {
  for (json& message : chat["messages"]) {
    if (!message.contains("tool_calls")) continue;
    for (json& call : message["tool_calls"]) {
      json& arguments = call["function"]["arguments"];
      if (arguments.is_string()) arguments = json::parse(arguments.get<std::string>());
    }
  }
  return chat;
}

TEST_CASE("Messages: a body becomes the recorded chat request") {
  for (const json& row : ReadRows("messages_convert.jsonl", "convert.jsonl")) {
    const std::string name = row["name"];
    CAPTURE(name);
    auto request = ParseMessagesRequest(Json::parse(row["request"].dump()));
    if (row.contains("invalid")) {
      CHECK(request.status().code() == StatusCode::kInvalidArgument);
      const std::string theirs = row["invalid"][0][1];
      const std::string prefix = "Value error, ";
      if (theirs.rfind(prefix, 0) == 0) {
        CHECK(request.status().message().find(theirs.substr(prefix.size())) != std::string::npos);
      }
      continue;
    }
    INFO(request.status().ToString());
    REQUIRE(request.ok());
    TemplateTraits traits;
    traits.system_anywhere = name != "inline_system_merged";
    const auto chat = ChatBodyOf(std::move(*request), traits);
    REQUIRE(chat.ok());
    CHECK(json::parse(chat->dump()) == WithParsedArguments(row["chat"]));
  }
}

}  // namespace
}  // namespace tandem
