// What a thinking budget becomes on the wire.

#include <nlohmann/json.hpp>

#include "tests/support/api_model.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

// Markers that are tokens of the recorded model.
constexpr ReasoningFormat kReasoning = {
    .name = "test", .aliases = "", .begin = "<|pad|>", .end = "<|begin|>"};

InputConfig ConfigOf(const ReasoningFormat* reasoning) {
  InputConfig config;
  config.parsers.reasoning = reasoning;
  return config;
}

// The engine request of a chat, or {"param": …}.
json Lowered(InputConfig config, json fields) {
  const ApiModel model(std::move(config));
  fields["messages"] = json::parse(R"([{"role": "user", "content": "hi"}])");
  const auto prepared = model.Prepare("/v1/chat/completions", fields.dump());
  if (!prepared.ok()) return {{"param", prepared.status().param()}};
  return json::parse(DescribeRequest(prepared->processed.requests.front()));
}

TEST_CASE("thinking_token_budget needs both marks of a reasoning") {
  const json budget = {{"thinking_token_budget", 7}};
  const json request = Lowered(ConfigOf(&kReasoning), budget);
  CHECK(request["sampling"]["thinking_token_budget"] == 7);
  CHECK(request["reasoning"]["forced_end"] == request["reasoning"]["end"]);
  CHECK(request["reasoning_ended"].is_null());
  const json none = {{"thinking_token_budget", -1}};
  CHECK(!Lowered(ConfigOf(nullptr), none)["sampling"].contains("thinking_token_budget"));
  CHECK(Lowered(ConfigOf(nullptr), budget)["param"] == "thinking_token_budget");
  ReasoningFormat no_begin = kReasoning;
  no_begin.begin = "";
  CHECK(Lowered(ConfigOf(&no_begin), budget)["param"] == "thinking_token_budget");
  // The server's own texts.
  InputConfig own = ConfigOf(&no_begin);
  own.parsers.reasoning_begin = "<|im_start|>";
  own.parsers.reasoning_end = "Enough.<|begin|>";
  const json phrase = Lowered(own, budget);
  CHECK(phrase["reasoning"]["forced_end"].size() > 2);
  CHECK(phrase["reasoning"]["end"] == request["reasoning"]["end"]);
  const json large = {{"thinking_token_budget", 1ll << 40}};
  CHECK(Lowered(ConfigOf(&kReasoning), large)["sampling"]["thinking_token_budget"] == INT32_MAX);
}

TEST_CASE("reasoning between special tokens is found in a chat without tools") {
  const ApiModel model(ConfigOf(&kReasoning));
  const auto prepared =
      model.Prepare("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}]})");
  REQUIRE(prepared.ok());
  const auto tokens = model.tokenizer().Encode("<|pad|>hm<|begin|>Hello", false);
  REQUIRE(tokens.ok());
  wire::EngineCoreOutput output;
  output.new_token_ids = *tokens;
  output.finish_reason = wire::FinishReason::kLength;
  const json body = json::parse(model.Respond(*prepared, {{0, output}}));
  CHECK(body["choices"][0]["message"]["reasoning"] == "hm");
  CHECK(body["choices"][0]["message"]["content"] == "Hello");
}

}  // namespace
}  // namespace tandem
