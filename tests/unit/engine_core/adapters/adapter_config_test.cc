#include "engine_core/adapters/adapter_config.h"

#include <cmath>
#include <string>

#include "tests/support/files/adapter_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

StatusOr<AdapterConfig> Parse(const std::string& more) {
  return AdapterConfig::Parse(AdapterConfigText(8, 16, more), 16);
}

TEST_CASE("adapter config: ranks and scales, with patterns for some modules") {
  const auto config = Parse(
      R"("rank_pattern": {"q_proj": 4, "layers.1.mlp.down_proj": 16, "^lm_head": 2, "a\\.b": 3},
         "alpha_pattern": {"v_proj": 40, "q_proj": 2})");
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  CHECK(config->ScalingOf("model.layers.0.self_attn.q_proj")->rank == 4);
  CHECK(config->ScalingOf("q_proj")->rank == 4);
  CHECK(config->ScalingOf("model.layers.0.self_attn.my_q_proj")->rank ==
        8);  // ends with it, not at a dot
  CHECK(config->ScalingOf("model.layers.1.mlp.down_proj")->rank == 16);
  CHECK(config->ScalingOf("model.layers.11.mlp.down_proj")->rank == 8);
  CHECK(config->ScalingOf("lm_head")->rank == 2);
  CHECK(config->ScalingOf("model.lm_head")->rank == 8);
  CHECK(config->ScalingOf("x.a.b")->rank == 3);
  CHECK(config->ScalingOf("o_proj")->scale == 2);
  CHECK(config->ScalingOf("v_proj")->scale == 5);
  CHECK(config->ScalingOf("q_proj")->scale == 0.5);
}

TEST_CASE("adapter config: rsLoRA divides by the root of the module's own rank") {
  const auto config = Parse(R"("use_rslora": true, "rank_pattern": {"q_proj": 4})");
  REQUIRE(config.ok());
  CHECK(config->ScalingOf("q_proj")->scale == 8);
  CHECK(config->ScalingOf("k_proj")->scale == static_cast<float>(16 / std::sqrt(8.0)));
}

TEST_CASE("adapter config: the first pattern of the file counts") {
  const auto config = Parse(R"("rank_pattern": {"z.q_proj": 2, "q_proj": 4, "a.q_proj": 6})");
  REQUIRE(config.ok());
  CHECK(config->ScalingOf("z.q_proj")->rank == 2);
  CHECK(config->ScalingOf("a.q_proj")->rank == 4);
}

TEST_CASE("adapter config: keys that do not change a finished adapter are ignored") {
  for (
      const char* more :
      {R"("use_dora": false, "lora_bias": null, "bias": "none", "modules_to_save": [])",
       R"("init_lora_weights": "gaussian", "lora_dropout": 0.1, "revision": null)",
       R"("init_lora_weights": true, "layers_to_transform": [1], "fan_in_fan_out": false)",
       R"("modules_to_save": ["classifier", "score"], "use_rslora": false)",
       R"("velora_config": {"num_groups": 64}, "arrow_config": null, "ensure_weight_tying": true)"}) {
    CAPTURE(more);
    CHECK(Parse(more).ok());
    CHECK(Parse(more)->warning().empty());
  }
}

TEST_CASE("adapter config: no module may be targeted, and one initialization warns") {
  CHECK(AdapterConfig::Parse(R"({"r": 8, "lora_alpha": 1, "target_modules": null})", 16).ok());
  CHECK_FALSE(
      AdapterConfig::Parse(R"({"r": null, "lora_alpha": 1, "target_modules": null})", 16).ok());
  const auto config = Parse(R"("init_lora_weights": "lora_ga")");
  REQUIRE(config.ok());
  CHECK_THAT(config->warning(), Catch::Contains("init_lora_weights is lora_ga"));
}

TEST_CASE("adapter config: what would change the result is refused by its key") {
  for (const auto& [more, word] : {
           std::pair{R"("use_dora": true)", "DoRA"},
           {R"("lora_bias": true)", "lora_bias"},
           {R"("arrow_config": {"top_k": 3})", "Arrow"},
           {R"("kasa_config": {"beta": 0.1})", "KaSA"},
           {R"("monteclora_config": {"num_samples": 4})", "MonteCLoRA"},
           {R"("bias": "all")", "bias"},
           {R"("bias": "lora_only")", "bias"},
           {R"("modules_to_save": ["lm_head"])", "modules_to_save"},
           {R"("modules_to_save": "lm_head")", "modules_to_save"},
           {R"("init_lora_weights": "pissa_niter_4")", "init_lora_weights"},
           {R"("init_lora_weights": "loftq")", "init_lora_weights"},
           {R"("init_lora_weights": 3)", "init_lora_weights"},
           {R"("alora_invocation_tokens": [1])", "aLoRA"},
           {R"("layer_replication": [[0, 1]])", "layer_replication"},
           {R"("use_bdlora": {"a": 1})", "BD-LoRA"},
           {R"("use_qalora": true)", "use_qalora"},
           {R"("peft_type": "IA3")", "peft_type"},
           {R"("use_rslora": "yes")", "use_rslora"},
           {R"("rank_pattern": {"q_proj": 17})", "max_lora_rank 16"},
           {R"("rank_pattern": {"q_proj": 0})", "q_proj"},
           {R"("rank_pattern": {"q_proj(": 4})", "rank_pattern: regular expression"},
           {R"("alpha_pattern": {"q_proj[": 4})", "alpha_pattern: regular expression"},
           {R"("rank_pattern": [4])", "rank_pattern"},
           {R"("alpha_pattern": {"q_proj": "x"})", "alpha_pattern.q_proj"},
       }) {
    const auto config = Parse(more);
    CAPTURE(more, config.status().ToString());
    REQUIRE_FALSE(config.ok());
    CHECK(config.status().message().find(word) != std::string::npos);
  }
}

TEST_CASE("adapter config: required keys, numbers in range, and text that is no object") {
  const std::string rest = R"("target_modules": ["q_proj"])";
  for (const std::string& text : {
           std::string(""),
           std::string("[]"),
           std::string("{not json"),
           std::string("{}"),
           "{\"lora_alpha\": 1, " + rest + "}",
           "{\"r\": 8, " + rest + "}",
           std::string(R"({"r": 8, "lora_alpha": 16})"),
           "{\"r\": 0, \"lora_alpha\": 1, " + rest + "}",
           "{\"r\": -1, \"lora_alpha\": 1, " + rest + "}",
           "{\"r\": 17, \"lora_alpha\": 1, " + rest + "}",
           "{\"r\": 18446744073709551615, \"lora_alpha\": 1, " + rest + "}",
           "{\"r\": 8.5, \"lora_alpha\": 1, " + rest + "}",
           "{\"r\": \"8\", \"lora_alpha\": 1, " + rest + "}",
           "{\"r\": 8, \"lora_alpha\": \"16\", " + rest + "}",
           "{\"r\": 8, \"lora_alpha\": 1e999, " + rest + "}",
           "{\"r\": 8, \"lora_alpha\": -1e39, " + rest + "}",
           std::string(100000, '['),
       }) {
    CAPTURE(text.substr(0, 100));
    CHECK_FALSE(AdapterConfig::Parse(text, 16).ok());
  }
  CHECK_THAT(AdapterConfig::Parse("{\"r\": 8, \"lora_alpha\": Infinity, " + rest + "}", 16)
                 .status()
                 .message(),
             Catch::Contains("lora_alpha is"));
}

}  // namespace
}  // namespace tandem
