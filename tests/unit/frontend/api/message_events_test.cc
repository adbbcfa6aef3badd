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
  const auto reason = [](const MessageDelta& last, bool has_calls) {
    return std::string(StopOf(last, has_calls).reason);
  };
  CHECK(reason(Ended(FinishReason::kStop), false) == "end_turn");
  CHECK(reason(Ended(FinishReason::kStop, int64_t{5}), false) == "end_turn");
  CHECK(reason(Ended(FinishReason::kStop), true) == "tool_use");  // a named tool
  CHECK(reason(Ended(FinishReason::kToolCalls), true) == "tool_use");
  CHECK(reason(Ended(FinishReason::kLength), true) == "max_tokens");
  CHECK(reason(Ended(FinishReason::kAbort), false) == "end_turn");
  CHECK(reason(Ended(FinishReason::kRepetition, std::string("x")), false) == "end_turn");
  const MessageStop stop = StopOf(Ended(FinishReason::kStop, std::string("END")), false);
  CHECK(stop.reason == "stop_sequence");
  CHECK(stop.sequence == "END");
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
