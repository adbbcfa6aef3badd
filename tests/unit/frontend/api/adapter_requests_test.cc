// A request that names an adapter as its model, through each endpoint that generates.

#include <nlohmann/json.hpp>

#include "tests/support/api_model.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

const json kMessages = json::array({{{"role", "user"}, {"content", "Hi"}}});
const std::pair<const char*, json> kBodies[] = {
    {"/v1/completions", {{"prompt", {"Hi", "Ho"}}, {"n", 2}}},
    {"/v1/completions", {{"prompt", "Hi"}, {"use_beam_search", true}, {"n", 2}}},
    {"/v1/chat/completions", {{"messages", kMessages}}},
    {"/v1/chat/completions/batch", {{"messages", json::array({kMessages, kMessages})}}},
    {"/v1/messages", {{"messages", kMessages}, {"max_tokens", 3}}},
    {"/v1/responses", {{"input", "Hi"}}},
    {"/invocations", {{"prompt", "Hi"}}},
    {"/inference/v1/generate", {{"token_ids", {1, 2}}, {"sampling_params", json::object()}}}};

TEST_CASE("an adapter that is named as the model goes with every engine request") {
  const ApiModel model;
  const wire::LoraRequest lora{.name = "x", .id = 7, .path = "/x"};
  RequestHeaders headers = model.Headers();
  headers.adapters = std::make_shared<const ServedAdapters>(
      std::vector<ServedAdapter>{{lora, 0}, {{.name = "y", .id = 8, .path = "/y"}, 0}});
  for (const auto& [path, fields] : kBodies) {
    CAPTURE(path, fields.dump());
    json body = fields;
    body["model"] = "x";
    const auto with_adapter = model.Prepare(path, body.dump(), headers);
    REQUIRE(with_adapter.ok());
    CHECK(with_adapter->writer.head.model == "x");
    CHECK_FALSE(with_adapter->processed.requests.empty());
    for (const wire::EngineCoreRequest& request : with_adapter->processed.requests) {
      CHECK(request.lora_request == wire::Packed(lora));
    }
    body["model"] = "m";
    const auto without = model.Prepare(path, body.dump(), headers);
    REQUIRE(without.ok());
    CHECK(without->processed.requests.front().lora_request.is_nil());
    body["model"] = "z";
    CHECK(model.Prepare(path, body.dump(), headers).status().code() == StatusCode::kNotFound);
  }
}

}  // namespace
}  // namespace tandem
