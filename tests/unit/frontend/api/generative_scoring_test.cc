// Scores from the logprobs of an engine's one token, and how much of long texts is copied.

#include "frontend/api/generative_scoring.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/api_model.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

struct Scored {
  TokenId id;
  float probability;
};

// The response where each item's token has these probabilities, the drawn one first.
json Respond(const ApiModel& model, json body, const std::vector<std::vector<Scored>>& items) {
  body["query"] = json::array({5});
  for (size_t i = 0; i < items.size(); ++i) body["items"].push_back(json::array({6}));
  const auto prepared = model.Prepare("/generative_scoring", body.dump());
  INFO(prepared.status().ToString());
  REQUIRE(prepared.ok());
  std::vector<ApiModel::Output> outputs;
  for (const std::vector<Scored>& item : items) {
    ApiModel::Output& one = outputs.emplace_back();
    one.choice = outputs.size() - 1;
    one.output.new_token_ids = {item.front().id};
    one.output.finish_reason = wire::FinishReason::kLength;
    wire::LogprobsRows rows;
    rows.num_rows = 1;
    rows.num_columns = static_cast<int32_t>(item.size());
    rows.ranks = {1};
    for (const Scored& token : item) {
      rows.token_ids.push_back(token.id);
      rows.logprobs.push_back(std::log(token.probability));
    }
    one.output.new_logprobs = std::move(rows);
  }
  return json::parse(model.Respond(*prepared, outputs));
}

TEST_CASE("a score is the first label's probability, among the labels or in the vocabulary") {
  const ApiModel model;
  // What is drawn may be a label or not.
  const std::vector<std::vector<Scored>> items = {{{9, 0.5F}, {7, 0.3F}, {8, 0.1F}},
                                                  {{8, 0.6F}, {7, 0.2F}, {8, 0.6F}}};
  const json among = Respond(model, {{"label_token_ids", {7, 8}}}, items);
  CHECK(among["object"] == "list");
  CHECK(among["model"] == "m");
  REQUIRE(among["data"].size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(among["data"][i]["index"] == i);
    CHECK(among["data"][i]["object"] == "score");
  }
  CHECK(among["data"][0]["score"].get<double>() == Approx(0.75));
  CHECK(among["data"][1]["score"].get<double>() == Approx(0.25));
  CHECK(among["usage"]["completion_tokens"] == 2);
  CHECK(among["usage"]["prompt_tokens"] == 4);
  const json all = Respond(model, {{"label_token_ids", {7, 8}}, {"apply_softmax", false}}, items);
  CHECK(all["data"][0]["score"].get<double>() == Approx(0.3));
  CHECK(all["data"][1]["score"].get<double>() == Approx(0.2));
  // A label twice counts once.
  const json twice = Respond(model, {{"label_token_ids", {7, 8, 7}}}, items);
  CHECK(twice["data"] == among["data"]);
}

TEST_CASE("labels that cannot come score 0, and one of them alone 1") {
  const ApiModel model;
  const std::vector<std::vector<Scored>> items = {{{8, 1.0F}, {7, 0.0F}}};
  CHECK(Respond(model, {{"label_token_ids", {7, 8}}}, items)["data"][0]["score"] == 0);
  CHECK(Respond(model, {{"label_token_ids", {7}}}, items)["data"][0]["score"] == 1);
  const json all = Respond(model, {{"label_token_ids", {7}}, {"apply_softmax", false}}, items);
  CHECK(all["data"][0]["score"] == 0);
}

TEST_CASE("a query that is far too long is not copied for each of its items") {
  const ApiModel model;
  constexpr size_t kMost = ApiModel::kMaxModelLen - 1;
  json body = {{"query", std::vector<int>(20 * kMost, 5)}, {"label_token_ids", {7}}};
  for (int i = 0; i < 3; ++i) body["items"].push_back(json::array({6}));
  for (const bool item_first : {false, true}) {
    body["item_first"] = item_first;
    const auto prepared = model.Prepare("/generative_scoring", body.dump());
    INFO(prepared.status().ToString());
    REQUIRE(prepared.ok());
    for (const auto& request : prepared->processed.requests) {
      CHECK(request.prompt_token_ids.size() == kMost);
      CHECK(request.prompt_token_ids.front() == (item_first ? 6 : 5));
      CHECK(request.prompt_token_ids.capacity() < 2 * kMost);
    }
    CHECK_FALSE(prepared->processed.warning.empty());
  }
}

TEST_CASE("a long query is not encoded with any number of documents") {
  InputConfig config;
  config.pooling.emplace().task = PoolingTask::kClassify;
  config.pooling->labels = {"LABEL_0"};
  const ApiModel model(std::move(config));
  json body = {{"queries", std::string(1 << 20, 'a')}, {"truncate_prompt_tokens", 5}};
  body["documents"] = json::array({"b"});
  CHECK(model.Prepare("/score", body.dump()).ok());
  body["documents"] = std::vector<std::string>(64, "b");
  const Status refused = model.Prepare("/score", body.dump()).status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK(refused.param() == "documents");
}

}  // namespace
}  // namespace tandem
