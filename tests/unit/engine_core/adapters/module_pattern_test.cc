#include "engine_core/adapters/module_pattern.h"

#include <string>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

bool Matches(const std::string& key, const std::string& module) {
  const auto pattern = ModulePattern::Parse(key);
  INFO(pattern.status().ToString());
  REQUIRE(pattern.ok());
  const auto is_match = pattern->Matches(module);
  INFO(is_match.status().ToString());
  REQUIRE(is_match.ok());
  return *is_match;
}

// Each as PEFT 0.21.2's get_pattern_key has it.
TEST_CASE("module pattern: a path matches where PEFT's expression does") {
  constexpr struct {
    const char *key, *module;
    bool is_match;
  } kCases[] = {
      {"q_proj", "model.layers.0.self_attn.q_proj", true},
      {"q_proj", "model.layers.0.self_attn.my_q_proj", false},
      {"q_proj", "q_proj", true},
      {"", "q_proj", false},
      {"layers.1.q_proj", "model.layers.1.q_proj", true},
      {"layers.1.q_proj", "model.layersX1.q_proj", true},
      {"layers\\.1\\.q_proj", "model.layersX1.q_proj", false},
      {"^lm_head", "lm_head", true},
      {"^lm_head", "model.lm_head", false},
      {"^model.layers.0.q_proj", "model.layers.0.q_proj", true},
      {"[qk]_proj", "model.layers.0.self_attn.k_proj", true},
      {"[qk]_proj", "model.layers.0.self_attn.v_proj", false},
      {"q_proj|v_proj", "model.layers.0.self_attn.v_proj", true},
      {"q_proj|v_proj", "model.layers.0.self_attn.v_proj2", false},
      {"q_.*", "model.layers.0.self_attn.q_proj", true},
      {"q_.*", "model.q_layers.0.mlp.up_proj", true},
      {"self_attn.*", "model.layers.0.self_attn.q_proj", true},
      {R"(layers\.(0|1|2)\..*)", "model.layers.2.mlp.up_proj", true},
      {R"(layers\.(0|1|2)\..*)", "model.layers.12.mlp.up_proj", false},
      {R"(layers\.[0-9]\.mlp\.\w+)", "model.layers.7.mlp.up_proj", true},
      {R"(layers\.[0-9]\.mlp\.\w+)", "model.layers.17.mlp.up_proj", false},
      {R"(.*\.layers\.\d+\.mlp\.down_proj)", "model.layers.17.mlp.down_proj", true},
      {R"(^layers\.\d+\.q_proj$)", "model.layers.17.q_proj", false},
      {R"(^model\.layers\.\d+\.q_proj$)", "model.layers.17.q_proj", true},
      {R"(model\.(?!layers\.0\.).*q_proj)", "model.layers.0.q_proj", false},
      {R"(model\.(?!layers\.0\.).*q_proj)", "model.layers.1.q_proj", true},
      {"(?:up|down)_proj", "model.layers.0.mlp.down_proj", true},
      {"(?P<kind>up|down)_proj", "model.layers.0.mlp.up_proj", true},
      {"q_proj)|(v_proj", "model.v_proj", false},
      {"q_proj)|(v_proj", "v_proj", true},
      {"Q_PROJ", "q_proj", false},
      {"q_proj{1}", "q_proj", true},
      {"layers.1.", "model.layers.1q", true},
  };
  for (const auto& one : kCases) {
    CAPTURE(one.key, one.module);
    CHECK(Matches(one.key, one.module) == one.is_match);
  }
}

TEST_CASE("module pattern: what is no expression, or a long one, is refused") {
  for (const char* key : {"q_proj(", "[a", "*", "q_proj)", "a{2,1}"}) {
    CAPTURE(key);
    const auto pattern = ModulePattern::Parse(key);
    REQUIRE_FALSE(pattern.ok());
    CHECK_THAT(pattern.status().message(), Catch::Contains(key));
  }
  CHECK_THAT(ModulePattern::Parse("(" + std::string(5000, 'a') + ")").status().message(),
             Catch::Contains("at most 4096"));
  CHECK_FALSE(ModulePattern::Parse(std::string(300, '(') + std::string(300, ')')).ok());
}

TEST_CASE("module pattern: one whose search grows without bound ends by its steps") {
  const auto pattern = ModulePattern::Parse("((a|a)*b|(a+)+c)");
  REQUIRE(pattern.ok());
  const auto is_match = pattern->Matches(std::string(60, 'a') + "d");
  REQUIRE_FALSE(is_match.ok());
  CHECK(is_match.status().code() == StatusCode::kResourceExhausted);
  CHECK_THAT(is_match.status().message(), Catch::Contains("limit"));
}

}  // namespace
}  // namespace tandem
