#include "deploy/cli/bench/request_body.h"

#include <nlohmann/json.hpp>
#include <set>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("bench: requests ask for the model, or for the adapters in turn or by the seed") {
  BenchServeOptions options;
  CHECK(RequestModel(options, "m", 3) == "m");
  options.lora_modules = {"a", "b", "c"};
  std::vector<std::string> drawn;
  for (size_t i = 0; i < 30; ++i) drawn.push_back(RequestModel(options, "m", i));
  CHECK(std::set(drawn.begin(), drawn.end()) == std::set<std::string>{"a", "b", "c"});
  for (size_t i = 0; i < 30; ++i) CHECK(RequestModel(options, "m", i) == drawn[i]);
  options.seed = 1;
  size_t num_equal = 0;
  for (size_t i = 0; i < 30; ++i) num_equal += RequestModel(options, "m", i) == drawn[i];
  CHECK(num_equal < 30);
  options.lora_assignment = "round-robin";
  for (size_t i = 0; i < 30; ++i) {
    CHECK(RequestModel(options, "m", i) == options.lora_modules[i % 3]);
  }
  BenchPrompt prompt;
  prompt.text = "x";
  const auto body =
      nlohmann::json::parse(RequestBody(options, RequestModel(options, "m", 1), prompt));
  CHECK(body["model"] == "b");
}

TEST_CASE("bench: vectors and scores have texts or a query with documents, and no sampling") {
  using Json = nlohmann::json;
  BenchServeOptions options;
  options.backend = "openai-embeddings";
  options.temperature = 0;
  const BenchPrompt text{"hello", {}, 1, 16}, ids{"", {4, 5}, 2, 16};
  CHECK(Json::parse(RequestBody(options, "m", text)) ==
        Json::parse(R"({"model": "m", "input": "hello", "truncate_prompt_tokens": -1})"));
  CHECK(Json::parse(RequestBody(options, "m", ids))["input"] == Json({4, 5}));
  BenchPrompt batch;
  batch.inputs = {"a", "b", "c"};
  CHECK(Json::parse(RequestBody(options, "m", batch))["input"] == Json({"a", "b", "c"}));
  options.backend = "vllm-rerank";
  options.extra_body = R"({"top_n": 1})";
  CHECK(Json::parse(RequestBody(options, "m", batch)) == Json::parse(R"({"model": "m", "query": "a",
      "documents": ["b", "c"], "truncate_prompt_tokens": -1, "top_n": 1})"));
}

TEST_CASE("bench: images follow the text of a chat") {
  using Json = nlohmann::json;
  BenchServeOptions options;
  options.backend = "openai-chat";
  BenchPrompt prompt{"hello", {}, 1, 16};
  prompt.images = {"data:a", "data:b"};
  CHECK(Json::parse(RequestBody(options, "m", prompt))["messages"][0]["content"] ==
        Json::parse(R"([{"type": "text", "text": "hello"},
                        {"type": "image_url", "image_url": {"url": "data:a"}},
                        {"type": "image_url", "image_url": {"url": "data:b"}}])"));
}

}  // namespace
}  // namespace tandem
