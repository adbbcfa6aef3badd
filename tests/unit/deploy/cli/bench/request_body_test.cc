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

}  // namespace
}  // namespace tandem
