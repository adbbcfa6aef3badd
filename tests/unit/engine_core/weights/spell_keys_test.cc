// Which layers of models with states are of which kind, and the sizes of their parts, in the
// spellings of published configs.

#include "engine_core/weights/spell_keys.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_core/models/registry.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::json;

Json Minimal(const std::string& architecture, int num_layers) {
  return Json{{"architectures", {architecture}},
              {"vocab_size", 100},
              {"hidden_size", 64},
              {"intermediate_size", 96},
              {"num_attention_heads", 4},
              {"num_hidden_layers", num_layers}};
}

StatusOr<ModelConfig> Parse(const Json& json) { return ParseModelConfig(json.dump(), ""); }

// The error message with one key replaced.
std::string Refusal(Json json, const std::string& key, const Json& value) {
  REQUIRE(Parse(json).ok());
  json[key] = value;
  const auto config = Parse(json);
  REQUIRE_FALSE(config.ok());
  return config.status().message();
}

Json Granite() {
  Json json = Minimal("GraniteMoeHybridForCausalLM", 3);
  json.update({{"layer_types", {"mamba", "attention", "mamba"}},
               {"mamba_n_heads", 4},
               {"mamba_d_state", 32},
               {"shared_intermediate_size", 80},
               {"num_local_experts", 6},
               {"position_embedding_type", "nope"}});
  return json;
}

TEST_CASE("spelled keys: Granite 4 with experts, and without") {
  const auto config = Parse(Granite());
  REQUIRE(config.ok());
  CHECK(config->recurrent.layers == std::vector<bool>{true, false, true});
  CHECK(config->recurrent.HasKv(1));
  CHECK_FALSE(config->recurrent.HasKv(0));
  CHECK(config->recurrent.value_dim == 32);  // "auto": twice the hidden size, in 4 heads
  CHECK(config->IsMixture(1));
  CHECK(config->moe_intermediate_size == 96);
  CHECK(config->shared_intermediate_size == 80);
  CHECK_FALSE(config->HasRope(1));

  Json json = Granite();
  json["num_local_experts"] = 0;
  json["position_embedding_type"] = "rope";
  const auto dense = Parse(json);
  REQUIRE(dense.ok());
  CHECK_FALSE(dense->IsMixture(1));
  CHECK(dense->num_experts == 0);
  CHECK(dense->intermediate_size == 80);
  CHECK(dense->HasRope(1));

  CHECK_THAT(Refusal(Granite(), "position_embedding_type", "alibi"),
             Contains("position_embedding_type"));
  CHECK_THAT(Refusal(Granite(), "layer_types", {"mamba", "window", "mamba"}),
             Contains("layer_types"));
  CHECK_THAT(Refusal(Granite(), "layer_types", {"mamba", "mlp", "mamba"}), Contains("layer_types"));
  CHECK_THAT(Refusal(Granite(), "mamba_n_heads", 5), Contains("mamba_n_heads"));
  CHECK_THAT(Refusal(Granite(), "mamba_n_groups", 3), Contains("mamba_n_groups"));
  CHECK_THAT(Refusal(Granite(), "mamba_proj_bias", true), Contains("mamba_proj_bias"));
}

TEST_CASE("spelled keys: each layer of Nemotron-H is one part") {
  Json json = Minimal("NemotronHForCausalLM", 4);
  json.update({{"hybrid_override_pattern", "M*-E"},
               {"mamba_num_heads", 4},
               {"mamba_head_dim", 32},
               {"ssm_state_size", 16},
               {"n_groups", 2},
               {"attention_head_dim", 24},
               {"n_routed_experts", 8},
               {"num_experts_per_tok", 2},
               {"moe_intermediate_size", 48},
               {"n_shared_experts", 1},
               {"moe_shared_expert_intermediate_size", 40}});
  const auto config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->recurrent.layers == std::vector<bool>{true, false, false, false});
  CHECK(config->recurrent.kv_layers == std::vector<bool>{false, true, false, false});
  CHECK(config->mixture_layers == std::vector<bool>{false, false, false, true});
  CHECK_FALSE(config->recurrent.HasMlp(1));
  CHECK(config->recurrent.HasMlp(2));
  CHECK(config->recurrent.value_dim == 32);
  CHECK(config->head_dim == 24);
  CHECK(config->hidden_act == "relu2");
  CHECK(config->shared_intermediate_size == 40);
  CHECK(config->rotary_dim == 0);
  CHECK_THAT(Refusal(json, "hybrid_override_pattern", "M*-"), Contains("hybrid_override_pattern"));
  CHECK_THAT(Refusal(json, "hybrid_override_pattern", "M*-X"), Contains("hybrid_override_pattern"));
  CHECK_THAT(Refusal(json, "moe_latent_size", -3), Contains("moe_latent_size"));
  CHECK_THAT(Refusal(json, "use_bias", true), Contains("use_bias"));
  CHECK_THAT(Refusal(json, "n_routed_experts", nullptr), Contains("n_routed_experts is missing"));

  json.erase("hybrid_override_pattern");
  CHECK_THAT(Parse(json).status().message(), Contains("hybrid_override_pattern is missing"));
  json["layers_block_type"] = {"mamba", "attention", "mlp", "mlp"};
  const auto dense = Parse(json);
  REQUIRE(dense.ok());
  CHECK(dense->num_experts == 0);
  CHECK(dense->shared_intermediate_size == 0);
  CHECK_FALSE(dense->IsMixture(3));
}

TEST_CASE("spelled keys: transformers 5 has Nemotron-H's layers without their number") {
  Json json = Minimal("NemotronHForCausalLM", 4);
  json.update({{"layers_block_type", {"mamba", "attention", "mlp"}},
               {"mamba_num_heads", 4},
               {"mamba_head_dim", 32},
               {"ssm_state_size", 16},
               {"n_groups", 2}});
  json.erase("num_hidden_layers");
  const auto by_types = Parse(json);
  INFO(by_types.status().ToString());
  REQUIRE(by_types.ok());
  CHECK(by_types->num_layers == 3);
  json.erase("layers_block_type");
  json["hybrid_override_pattern"] = "M-";
  const auto by_letters = Parse(json);
  REQUIRE(by_letters.ok());
  CHECK(by_letters->num_layers == 2);
}

TEST_CASE("spelled keys: LFM2's layers with attention by their numbers") {
  for (const char* name : {"Lfm2ForCausalLM", "Lfm2MoeForCausalLM"}) {
    CAPTURE(name);
    Json json = Minimal(name, 4);
    json["full_attn_idxs"] = {1, 3};
    const auto config = Parse(json);
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    CHECK(config->recurrent.layers == std::vector<bool>{true, false, true, false});
    CHECK_THAT(Refusal(json, "full_attn_idxs", {1, 4}), Contains("full_attn_idxs"));
    CHECK_THAT(Refusal(json, "full_attn_idxs", "1"), Contains("full_attn_idxs"));
    json["layer_types"] = {"full_attention", "conv", "conv", "conv"};
    CHECK(Parse(json)->recurrent.layers == std::vector<bool>{false, true, true, true});
  }
}

TEST_CASE("spelled keys: Falcon-H1 has attention and a state in every layer") {
  Json json = Minimal("FalconH1ForCausalLM", 2);
  json.update({{"mamba_n_heads", 3},
               {"mamba_d_head", 32},
               {"mamba_d_ssm", 96},
               {"mlp_multipliers", {0.9, 0.5}},
               {"ssm_multipliers", {0.5, 0.25, 2.0, 4.0, 8.0}},
               {"ssm_in_multiplier", 2.0},
               {"lm_head_multiplier", 0.6}});
  const auto config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->recurrent.HasState(1));
  CHECK(config->recurrent.HasKv(1));
  CHECK(config->recurrent.HasMlp(1));
  CHECK_FALSE(config->recurrent.has_norm);
  CHECK(config->recurrent.in_scales == std::array<double, 5>{1, 0.5, 4, 8, 16});
  CHECK(config->mlp_gate_multiplier == 0.9);
  CHECK(config->mlp_out_multiplier == 0.5);
  CHECK(config->logit_scale == 0.6);
  CHECK_THAT(Refusal(json, "mamba_d_ssm", 64), Contains("mamba_d_ssm"));
  CHECK_THAT(Refusal(json, "mlp_multipliers", {1.0}), Contains("mlp_multipliers"));
  CHECK_THAT(Refusal(json, "ssm_multipliers", {1.0, 2.0}), Contains("ssm_multipliers"));
  CHECK_THAT(Refusal(json, "projectors_bias", true), Contains("projectors_bias"));
}

TEST_CASE("spelled keys: periods of Jamba's layers") {
  Json json = Minimal("JambaForCausalLM", 6);
  json.update({{"attn_layer_period", 3},
               {"attn_layer_offset", 0},
               {"expert_layer_period", 2},
               {"expert_layer_offset", 1},
               {"num_experts", 4}});
  const auto config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->recurrent.layers == std::vector<bool>{false, true, true, false, true, true});
  CHECK(config->mixture_layers == std::vector<bool>{false, true, false, true, false, true});
  CHECK(config->recurrent.step_rank == 4);
  CHECK(config->recurrent.state_size() == 3 * 128 + 128 * 16);
  CHECK_THAT(Refusal(json, "attn_layer_offset", 3), Contains("attn_layer_offset"));
  CHECK_THAT(Refusal(json, "mamba_dt_rank", 0), Contains("mamba_dt_rank"));
  json["num_experts"] = 1;
  CHECK_FALSE(Parse(json)->IsMixture(1));
}

TEST_CASE("spelled keys: sizes of Hunyuan's mixture may be lists") {
  Json json = Minimal("HunYuanMoEV1ForCausalLM", 2);
  json.update({{"num_experts", 16},
               {"moe_topk", {4, 4}},
               {"moe_intermediate_size", {48, 48}},
               {"num_shared_expert", {1, 1}}});
  const auto config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->mixture_layers == std::vector<bool>{true, true});
  CHECK(config->num_experts_per_tok == 4);
  CHECK(config->moe_intermediate_size == 48);
  CHECK(config->shared_intermediate_size == 96);
  CHECK(config->use_qk_norm);
  CHECK_THAT(Refusal(json, "moe_topk", Json::array({4, 2})), Contains("moe_topk"));
  CHECK_THAT(Refusal(json, "use_cla", true), Contains("use_cla"));
  json.erase("moe_intermediate_size");
  CHECK(Parse(json)->moe_intermediate_size == 96);
}

TEST_CASE("spelled keys: Granite 3's experts, with a shared MLP or without") {
  Json json = Minimal("GraniteMoeSharedForCausalLM", 2);
  json["shared_intermediate_size"] = 0;
  CHECK(Parse(json)->moe_intermediate_size == 96);
  CHECK(Parse(json)->shared_intermediate_size == 0);
  json["shared_intermediate_size"] = 40;
  CHECK(Parse(json)->shared_intermediate_size == 40);
  CHECK(Parse(json)->IsMixture(0));
}

TEST_CASE("spelled keys: LFM2 has experts after its dense layers") {
  Json json = Minimal("Lfm2MoeForCausalLM", 3);
  json.update({{"layer_types", {"conv", "full_attention", "conv"}},
               {"num_dense_layers", 1},
               {"num_experts", 8},
               {"norm_eps", 1e-4}});
  const auto config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->recurrent.layers == std::vector<bool>{true, false, true});
  CHECK(config->mixture_layers == std::vector<bool>{false, true, true});
  CHECK(config->num_experts == 8);
  CHECK(config->rms_norm_eps == 1e-4);
  CHECK(config->tie_word_embeddings);
  CHECK_THAT(Refusal(json, "use_expert_bias", false), Contains("use_expert_bias"));
}

}  // namespace
}  // namespace tandem
