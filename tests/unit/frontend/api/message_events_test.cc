#include "frontend/api/message_events.h"

#include <nlohmann/json.hpp>

#include "frontend/api/error.h"
#include "tests/support/anthropic_events.h"
#include "tests/support/api_model.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

MessageDelta Ended(FinishReason reason, wire::StopReason stop_reason = {}) {
  MessageDelta delta;
  delta.finish_reason = reason;
  delta.stop_reason = std::move(stop_reason);
  return delta;
}

TEST_CASE("MessageEvents writes a message to the letter") {
  std::string out;
  MessageEvents events(&out);
  events.Start({"chatcmpl-1", 0, "m\"", ""}, {13, 1, std::nullopt, 0});
  MessageDelta text;
  text.AddContent("a\n");
  events.Add(text);
  MessageDelta call;
  call.AddCall({0, "call-1", "now", "{}"});
  events.Add(call);
  events.End(Ended(FinishReason::kToolCalls));
  events.Stop({13, 7, 4, 2});
  CHECK(out ==
        R"(event: message_start
data: {"type":"message_start","message":{"id":"chatcmpl-1","type":"message","role":"assistant","content":[],"model":"m\"","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":13,"output_tokens":0}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\n"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"call-1","name":"now","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":7,"output_tokens":7,"cache_creation_input_tokens":2,"cache_read_input_tokens":4}}

event: message_stop
data: {"type":"message_stop"}

)");
}

TEST_CASE("a thinking block ends with one signature, and text after a call is a block of its own") {
  std::string out;
  MessageEvents events(&out);
  events.Start({"id", 0, "m", ""}, {});
  MessageDelta delta;
  delta.AddReasoning("hm");
  delta.AddContent("one");
  delta.AddCall({0, "c0", "f", "{\"x\":"});
  delta.AddContent("two");
  events.Add(delta);
  delta.Clear();
  delta.AddReasoning("late");
  events.Add(delta);
  events.End(Ended(FinishReason::kStop));
  events.Stop({});
  const json blocks = PutTogether(out)["content"];
  REQUIRE(blocks.size() == 5);
  CHECK(blocks[0]["thinking"] == "hm");
  CHECK(blocks[0]["signature"].get<std::string>().size() == 32);
  CHECK(blocks[1]["text"] == "one");
  CHECK(blocks[2]["input_json"] == "{\"x\":");
  CHECK(blocks[3]["text"] == "two");
  CHECK(blocks[4]["thinking"] == "late");
}

TEST_CASE("the stop reason follows from how the message ended") {
  const auto stop = [](const MessageDelta& last, const char* arguments) {
    std::string out;
    MessageEvents sink(&out);
    ContentBlocks blocks(&sink);
    MessageDelta call;
    if (arguments != nullptr) call.AddCall({0, "c", "f", arguments});
    blocks.Add(call);
    return StopOf(last, blocks);
  };
  const auto reason = [&](const MessageDelta& last, const char* arguments) {
    return std::string(stop(last, arguments).reason);
  };
  CHECK(reason(Ended(FinishReason::kStop), nullptr) == "end_turn");
  CHECK(reason(Ended(FinishReason::kStop, int64_t{5}), nullptr) == "end_turn");
  CHECK(reason(Ended(FinishReason::kStop), "{}") == "tool_use");  // a named tool
  CHECK(reason(Ended(FinishReason::kToolCalls), "{}") == "tool_use");
  CHECK(reason(Ended(FinishReason::kLength), "{}") == "max_tokens");
  CHECK(reason(Ended(FinishReason::kAbort), nullptr) == "end_turn");
  CHECK(reason(Ended(FinishReason::kRepetition, std::string("x")), nullptr) == "end_turn");
  CHECK(stop(Ended(FinishReason::kStop, std::string("END")), nullptr).reason == "stop_sequence");
  CHECK(stop(Ended(FinishReason::kStop, std::string("END")), nullptr).sequence == "END");
  CHECK(reason(Ended(FinishReason::kToolCalls, std::string("END")), "{}") == "tool_use");
}

TEST_CASE("a call that a stop sequence cut short is not to be run") {
  for (const bool stream : {false, true}) {
    const ApiModel model;
    const auto prepared = model.Prepare(
        "/v1/messages", std::string(R"({"max_tokens":5,"stream":)") + (stream ? "true" : "false") +
                            R"(,"messages":[{"role":"user","content":"x"}]})");
    REQUIRE(prepared.ok());
    std::string out;
    const auto writer = prepared->MakeWriter(&out);
    MessageDelta last = Ended(FinishReason::kToolCalls, std::string("END"));
    last.AddCall({0, "c", "f", "{\"x\": 1"});
    writer->WriteDelta(0, last, {});
    writer->WriteEnd({});
    CHECK(out.find("\"stop_reason\":\"stop_sequence\"") != std::string::npos);
    CHECK(out.find("\"stop_sequence\":\"END\"") != std::string::npos);
  }
}

TEST_CASE("the input of a call is what the model wrote") {
  const ApiModel model;
  const auto input = [&model](const std::string& arguments) {
    const auto prepared = model.Prepare(
        "/v1/messages", R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}]})");
    REQUIRE(prepared.ok());
    std::string out;
    const auto writer = prepared->MakeWriter(&out);
    MessageDelta last = Ended(FinishReason::kToolCalls);
    last.AddCall({0, "c", "f", arguments});
    writer->WriteDelta(0, last, {});
    writer->WriteEnd({});
    const size_t begin = out.find("\"input\":") + 8;
    return out.substr(begin, out.find("}],\"model\"") - begin);
  };
  for (const char* arguments : {"{}", " {\"n\": 12345678901234567890123, \"n\": 1.50}\n"}) {
    CHECK(input(arguments) == arguments);
  }
  const std::string deep = "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  CHECK(input(deep) == deep);
  for (const char* cut : {"", "{", "{\"a\": 1", "[1]", "1"}) CHECK(input(cut) == "{}");
}

TEST_CASE("a stream of messages that fails ends with an error event") {
  const ApiModel model;
  const auto prepared =
      model.Prepare("/v1/messages",
                    R"({"max_tokens":5,"stream":true,"messages":[{"role":"user","content":"x"}]})");
  INFO(prepared.status().ToString());
  REQUIRE(prepared.ok());
  std::string out;
  prepared->MakeWriter(&out)->WriteError(UnavailableError("the engine is gone"));
  CHECK(out ==
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
        "\"message\":\"the engine is gone\"}}\n\n");
}

}  // namespace
}  // namespace tandem
