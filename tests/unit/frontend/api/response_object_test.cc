// What responses show of the engine's last output, and of a whole run.

#include "frontend/api/response_object.h"

#include <nlohmann/json.hpp>

#include "tests/support/api_model.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

const ApiModel& Model() {
  static const ApiModel model;
  return model;
}

// The answer to a body when the engine gives these tokens, one a step.
std::string Answer(const std::string& path, const json& body, const std::vector<TokenId>& ids,
                   const std::string& ec_transfer_params = {}) {
  const auto prepared = Model().Prepare(path, body.dump());
  INFO(prepared.status().ToString());
  REQUIRE(prepared.ok());
  std::vector<ApiModel::Output> outputs;
  for (const TokenId id : ids) {
    outputs.emplace_back().output.new_token_ids = {id};
  }
  outputs.back().output.finish_reason = wire::FinishReason::kLength;
  if (!ec_transfer_params.empty()) {
    const auto packed = json::to_msgpack(json::parse(ec_transfer_params));
    outputs.back().output.ec_transfer_params =
        wire::RawValue{std::string(packed.begin(), packed.end())};
  }
  return Model().Respond(*prepared, outputs);
}

std::vector<TokenId> Ids(std::string_view text) { return *Model().tokenizer().Encode(text, false); }

TEST_CASE("a response shows its prompt and its output as text and tokens where it is asked to") {
  const json body = {{"input", "Say hi"}, {"enable_response_messages", true}};
  const auto prompt =
      Model().Prepare("/v1/responses", body.dump())->processed.requests[0].prompt_token_ids;
  const std::vector<TokenId> output = Ids("hi there");
  const json answer = json::parse(Answer("/v1/responses", body, output));
  REQUIRE(answer["input_messages"].size() == 1);
  CHECK(answer["input_messages"][0]["type"] == "raw_message_tokens");
  CHECK(answer["input_messages"][0]["tokens"] == prompt);
  CHECK(answer["input_messages"][0]["message"] == Model().tokenizer().Decode(prompt, false));
  CHECK(
      answer["output_messages"] ==
      json::array({{{"message", "hi there"}, {"tokens", output}, {"type", "raw_message_tokens"}}}));
  const json plain = json::parse(Answer("/v1/responses", {{"input", "Say hi"}}, output));
  CHECK(plain["input_messages"].is_null());
  CHECK(plain["output_messages"].is_null());
}

TEST_CASE("the last event of a response has its messages too") {
  const json body = {{"input", "x"}, {"stream", true}, {"enable_response_messages", true}};
  const std::string stream = Answer("/v1/responses", body, Ids("hi"));
  const size_t last = stream.rfind("event: response.incomplete\ndata: ");
  REQUIRE(last != std::string::npos);
  const json event = json::parse(stream.substr(stream.find('{', last)));
  CHECK(event["response"]["output_messages"][0]["message"] == "hi");
}

TEST_CASE("what the engine says of an encoder's transfer is part of the response") {
  const json chat = {{"messages", {{{"role", "user"}, {"content", "x"}}}}};
  for (const auto& [path, body] :
       std::vector<std::pair<std::string, json>>{{"/v1/chat/completions", chat},
                                                 {"/v1/completions", {{"prompt", "x"}}},
                                                 {"/v1/responses", {{"input", "x"}}}}) {
    CAPTURE(path);
    const json with = json::parse(Answer(path, body, Ids("hi"), R"({"a": [1]})"));
    CHECK(with["ec_transfer_params"] == json::parse(R"({"a": [1]})"));
    CHECK(json::parse(Answer(path, body, Ids("hi")))["ec_transfer_params"].is_null());
  }
}

}  // namespace
}  // namespace tandem
