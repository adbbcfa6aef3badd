#include "engine_core/weights/model_config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine_core/models/registry.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::json;

const std::string kModels = std::string(TANDEM_GOLDEN_DIR) + "/models/";

Json Minimal() {
  return Json{{"architectures", {"LlamaForCausalLM"}},
              {"vocab_size", 100},
              {"hidden_size", 64},
              {"intermediate_size", 96},
              {"num_hidden_layers", 2},
              {"num_attention_heads", 4}};
}

StatusOr<ModelConfig> Parse(const Json& json, const std::string& generation = "") {
  return ParseModelConfig(json.dump(), generation);
}

// The error message for Minimal() with one key replaced.
std::string Refusal(const std::string& key, const Json& value) {
  Json json = Minimal();
  json[key] = value;
  const auto config = Parse(json);
  REQUIRE_FALSE(config.ok());
  return config.status().message();
}

TEST_CASE("model config: absent keys have the architecture family's defaults") {
  const auto config = Parse(Minimal());
  REQUIRE(config.ok());
  CHECK(config->num_kv_heads == 4);
  CHECK(config->head_dim == 16);
  CHECK(config->max_position_embeddings == 2048);
  CHECK(config->rope.type == RopeType::kDefault);
  CHECK(config->rope.theta == 10000);
  CHECK(config->dtype == DType::kBf16);
  CHECK_FALSE(config->tie_word_embeddings);
  CHECK(config->eos_token_ids.empty());
}

TEST_CASE("model config: both spellings of rope and dtype") {
  const auto v4 = ReadModelConfig(kModels + "llama_fp16");
  REQUIRE(v4.ok());
  CHECK(v4->rope.theta == 10000);
  CHECK(v4->dtype == DType::kF16);
  Json wide = Minimal();
  wide["dtype"] = "float64";
  CHECK(Parse(wide)->dtype == DType::kF32);
  CHECK(v4->eos_token_ids == std::vector<TokenId>{2});
  Json config = Minimal();
  config["rope_parameters"] = {{"rope_theta", 20000.0}, {"rope_type", "default"}};
  config["dtype"] = "float32";
  const auto v5 = Parse(config);
  REQUIRE(v5.ok());
  CHECK(v5->rope.theta == 20000);
  CHECK(v5->dtype == DType::kF32);
}

TEST_CASE("model config: head_dim, biases and tied embeddings of real folders") {
  const auto bias = ReadModelConfig(kModels + "llama_bias_headdim");
  REQUIRE(bias.ok());
  CHECK(bias->head_dim == 32);
  CHECK(bias->attention_bias);
  CHECK(bias->mlp_bias);
  const auto qwen3 = ReadModelConfig(kModels + "qwen3");
  REQUIRE(qwen3.ok());
  CHECK(qwen3->architecture == "Qwen3ForCausalLM");
  CHECK(qwen3->tie_word_embeddings);
}

TEST_CASE("model config: rope scalings") {
  const auto linear = ReadModelConfig(kModels + "llama_rope_linear");
  REQUIRE(linear.ok());
  CHECK(linear->rope.type == RopeType::kLinear);
  CHECK(linear->rope.factor == 4);
  const auto llama3 = ReadModelConfig(kModels + "llama_rope_llama3");
  REQUIRE(llama3.ok());
  CHECK(llama3->rope.type == RopeType::kLlama3);
  CHECK(llama3->rope.high_freq_factor == 4);
  CHECK(llama3->rope.original_max_position_embeddings == 64);
  const auto yarn = ReadModelConfig(kModels + "llama_rope_yarn");
  REQUIRE(yarn.ok());
  CHECK(yarn->rope.type == RopeType::kYarn);
  CHECK(yarn->rope.attention_factor == Approx(0.1 * std::log(4.0) + 1));
}

TEST_CASE("model config: longrope, its spellings and its refusals") {
  const std::vector<double> eight(8, 1.5);
  Json json = Minimal();
  json["max_position_embeddings"] = 4096;
  json["original_max_position_embeddings"] = 64;
  json["rope_scaling"] = {{"type", "su"}, {"short_factor", eight}, {"long_factor", eight}};
  for (const std::string type : {"su", "yarn", "longrope"}) {  // Phi-3's three names for it
    json["rope_scaling"]["type"] = type;
    const auto config = Parse(json);
    REQUIRE(config.ok());
    CHECK(config->rope.type == RopeType::kLongRope);
    CHECK(config->rope.original_max_position_embeddings == 64);
    CHECK(config->rope.attention_factor == Approx(std::sqrt(1 + std::log(64.0) / std::log(64.0))));
  }
  json["rope_scaling"]["original_max_position_embeddings"] = 128;  // the outer one wins
  CHECK(Parse(json)->rope.original_max_position_embeddings == 64);
  json.erase("original_max_position_embeddings");
  CHECK(Parse(json)->rope.original_max_position_embeddings == 128);
  json["rope_scaling"]["long_mscale"] = 1.25;
  CHECK(Parse(json)->rope.long_attention_factor == 1.25);
  CHECK_FALSE(Parse(json)->rope.short_attention_factor.has_value());
  json["rope_scaling"]["long_factor"] = std::vector<double>(7, 1.0);
  CHECK_THAT(Parse(json).status().message(), Contains("must have 8 numbers") && Contains("has 7"));
  json["rope_scaling"]["long_factor"] = {1, -1};
  CHECK_THAT(Parse(json).status().message(), Contains("long_factor") && Contains("above 0"));
  json["rope_scaling"].erase("long_factor");
  CHECK_THAT(Parse(json).status().message(), Contains("long_factor is missing"));
}

TEST_CASE("model config: partial rotary dimensions, in both spellings") {
  Json json = Minimal();
  CHECK(Parse(json)->rotary_dim == 16);
  json["partial_rotary_factor"] = 0.75;
  CHECK(Parse(json)->rotary_dim == 12);
  json.erase("partial_rotary_factor");
  json["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 500.0}, {"partial_rotary_factor", 0.5}};
  CHECK(Parse(json)->rotary_dim == 8);
  CHECK(Parse(json)->rope.theta == 500);
  CHECK_THAT(Refusal("partial_rotary_factor", 0.2), Contains("even"));  // 3 of 16 dimensions
}

TEST_CASE("model config: a rope for each layer type") {
  Json json = Minimal();
  json["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}}},
                             {"sliding_attention", {{"rope_theta", 5000.0}}}};
  const auto config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->rope.type == RopeType::kLinear);
  CHECK(config->rope.factor == 8);
  CHECK(config->local_rope.type == RopeType::kDefault);
  CHECK(config->local_rope.theta == 5000);
  json["rope_parameters"].erase("full_attention");
  CHECK(Parse(json)->rope.type == RopeType::kDefault);
  json["rope_parameters"]["sliding_attention"] = 3;
  CHECK_THAT(Parse(json).status().message(), Contains("rope_parameters"));
}

RopeConfig Unscaled(double theta) {
  RopeConfig rope;
  rope.theta = theta;
  return rope;
}

// Layers of `architecture`, one without a window and one with.
Json TwoKinds(const char* architecture) {
  Json json = Minimal();
  json["architectures"] = {architecture};
  json["sliding_window"] = 8;
  json["layer_types"] = {"full_attention", "sliding_attention"};
  return json;
}

TEST_CASE("model config: a rope for layers with a window is the config's, or that of the others") {
  Json json = TwoKinds("Olmo3ForCausalLM");
  json["rope_theta"] = 3000.0;
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  auto config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->rope.factor == 4);
  CHECK(config->local_rope == Unscaled(3000));  // without the scaling
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"rope_theta", 700.0}, {"rope_type", "linear"}, {"factor", 4.0}};
  CHECK(Parse(json)->local_rope == Unscaled(700));
  json["rope_parameters"] = {
      {"full_attention", {{"rope_theta", 700.0}}},
      {"sliding_attention", {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 900.0}}}};
  config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->rope == Unscaled(700));
  CHECK(config->local_rope.theta == 900);
  CHECK(config->local_rope.factor == 2);
  json["rope_parameters"].erase("sliding_attention");
  CHECK(Parse(json)->local_rope == Unscaled(700));
}

TEST_CASE("model config: a rope for layers with a window that the architecture does not have") {
  for (const char* architecture :
       {"MistralForCausalLM", "Qwen3ForCausalLM", "CwmForCausalLM", "Gemma2ForCausalLM",
        "Cohere2ForCausalLM", "Exaone4ForCausalLM", "GptOssForCausalLM", "SmolLM3ForCausalLM"}) {
    INFO(architecture);
    Json json = TwoKinds(architecture);
    json["use_sliding_window"] = true;
    json["rope_scaling"] = nullptr;
    json["num_local_experts"] = 2;
    json["rope_parameters"] = {{"full_attention", {{"rope_theta", 700.0}}},
                               {"sliding_attention", {{"rope_theta", 700.0}}}};
    CHECK(Parse(json).status().ToString() == "OK");
    json["rope_parameters"]["sliding_attention"]["rope_theta"] = 900.0;
    CHECK_THAT(Parse(json).status().message(),
               Contains("sliding_attention") && Contains(architecture));
    json["rope_parameters"] = {{"rope_theta", 700.0}, {"rope_type", "default"}};
    json["rope_local_base_freq"] = 900.0;
    CHECK_THAT(Parse(json).status().message(), Contains("rope_local_base_freq"));
    json["layer_types"] = {"full_attention", "full_attention"};  // where no layer has a window
    CHECK(Parse(json).ok());
  }
  Json json = TwoKinds("Gemma3ForCausalLM");
  json["rope_parameters"] = {{"full_attention", {{"rope_theta", 700.0}}},
                             {"chunked_attention", {{"rope_theta", 700.0}}}};
  CHECK_THAT(Parse(json).status().message(), Contains("chunked_attention"));
  json["rope_parameters"] = {{"full_attention", {{"partial_rotary_factor", 0.5}}},
                             {"sliding_attention", {{"partial_rotary_factor", 0.5}}}};
  CHECK(Parse(json).ok());
  json["rope_parameters"]["sliding_attention"]["partial_rotary_factor"] = 1.0;
  CHECK_THAT(Parse(json).status().message(), Contains("partial_rotary_factor"));
}

TEST_CASE("model config: a window that no layer has") {
  Json json = TwoKinds("Exaone4ForCausalLM");
  CHECK(Parse(json)->names_window);
  json["layer_types"] = {"full_attention", "full_attention"};
  CHECK(Parse(json)->names_window);
  CHECK(Parse(json)->sliding_window == 0);
  json["sliding_window"] = nullptr;
  CHECK_FALSE(Parse(json)->names_window);
}

std::vector<int> Windows(const Json& json) {
  const auto config = Parse(json);
  REQUIRE(config.ok());
  std::vector<int> windows;
  for (int64_t i = 0; i < config->num_layers; ++i) windows.push_back(config->WindowOf(i));
  return windows;
}

TEST_CASE("model config: which layers have a window") {
  Json json = Minimal();
  json["num_hidden_layers"] = 4;
  json["sliding_window"] = 9;
  CHECK(Windows(json) == std::vector{0, 0, 0, 0});  // Llama ignores the key
  CHECK(Parse(json)->sliding_window == 0);
  json["architectures"] = {"MistralForCausalLM"};
  CHECK(Windows(json) == std::vector{9, 9, 9, 9});
  json["architectures"] = {"Cohere2ForCausalLM"};
  CHECK(Windows(json) == std::vector{10, 10, 10, 0});  // as many keys before the token's own
  json["architectures"] = {"MistralForCausalLM"};
  json["sliding_window"] = nullptr;
  CHECK(Windows(json) == std::vector{0, 0, 0, 0});
  json.erase("sliding_window");
  CHECK(Windows(json) == std::vector{4096, 4096, 4096, 4096});
  json["architectures"] = {"Gemma2ForCausalLM"};
  CHECK(Windows(json) == std::vector{4096, 0, 4096, 0});
  json["layer_types"] = {"full_attention", "full_attention", "sliding_attention", "full_attention"};
  CHECK(Windows(json) == std::vector{0, 0, 4096, 0});
  json.erase("layer_types");
  json["architectures"] = {"Qwen2ForCausalLM"};
  json["sliding_window"] = 7;
  CHECK(Windows(json) == std::vector{0, 0, 0, 0});
  CHECK(Parse(json)->sliding_window == 0);
  json["use_sliding_window"] = true;
  json["max_window_layers"] = 3;
  CHECK(Windows(json) == std::vector{0, 0, 0, 7});
  json["max_window_layers"] = 4;
  CHECK(Parse(json)->sliding_window == 0);
  json["sliding_window"] = 0;  // as transformers 5 writes a window that is off
  CHECK(Windows(json) == std::vector{0, 0, 0, 0});
  json["max_window_layers"] = -1;
  CHECK_THAT(Parse(json).status().message(), Contains("max_window_layers"));
  json.erase("max_window_layers");
  json["layer_types"] = {"sliding_attention"};
  CHECK_THAT(Parse(json).status().message(), Contains("layer_types"));
  json["layer_types"] = {"sliding_attention", "linear_attention", "full_attention",
                         "full_attention"};
  CHECK_THAT(Parse(json).status().message(), Contains("linear_attention"));
}

TEST_CASE("model config: GPT-2's names for the common keys") {
  const Json json = {{"architectures", {"GPT2LMHeadModel"}},
                     {"vocab_size", 100},
                     {"n_embd", 64},
                     {"n_layer", 3},
                     {"n_head", 4},
                     {"n_inner", nullptr}};
  const auto config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->hidden_size == 64);
  CHECK(config->intermediate_size == 256);
  CHECK(config->num_layers == 3);
  CHECK(config->num_heads == 4);
  CHECK(config->head_dim == 16);
  CHECK(config->max_position_embeddings == 1024);
  CHECK(config->rms_norm_eps == 1e-5);
  CHECK(config->hidden_act == "gelu_new");
  Json usual = json;
  usual["n_inner"] = 96;
  usual["layer_norm_epsilon"] = 1e-3;
  usual["n_positions"] = 77;
  CHECK(Parse(usual)->intermediate_size == 96);
  CHECK(Parse(usual)->rms_norm_eps == 1e-3);
  CHECK(Parse(usual)->max_position_embeddings == 77);
}

TEST_CASE("model config: text_config is read, multimodal architectures are refused") {
  Json inner = Minimal();
  inner.erase("architectures");
  inner["model_type"] = "gemma3_text";
  const Json json = {{"architectures", {"Gemma3ForCausalLM"}},
                     {"model_type", "gemma3"},
                     {"eos_token_id", 5},
                     {"text_config", inner}};
  const auto config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->hidden_size == 64);
  CHECK(config->model_type == "gemma3_text");
  CHECK(config->eos_token_ids == std::vector<TokenId>{5});
  CHECK_THAT(Refusal("text_config", 3), Contains("text_config"));
  Json published = json;
  published["architectures"] = {"Gemma3ForConditionalGeneration"};
  const auto with_vision = Parse(published);
  REQUIRE(with_vision.ok());
  CHECK(with_vision->architecture == "Gemma3ForCausalLM");
  CHECK_THAT(Refusal("architectures", {"LlavaForConditionalGeneration"}),
             Contains("LlavaForConditionalGeneration") && Contains("more than text"));
}

TEST_CASE("model config: keys by other names, and values that are not built") {
  Json json = Minimal();
  json["architectures"] = {"GPTNeoXForCausalLM"};
  json["layer_norm_eps"] = 1e-4;
  json["rotary_emb_base"] = 500;
  json["rotary_pct"] = 0.5;
  const auto neox = Parse(json);
  REQUIRE(neox.ok());
  CHECK(neox->rms_norm_eps == 1e-4);
  CHECK(neox->rope.theta == 500);
  CHECK(neox->rotary_dim == neox->head_dim / 2);
  CHECK(neox->use_parallel_residual);

  json = Minimal();
  json["architectures"] = {"FalconForCausalLM"};
  REQUIRE(Parse(json).ok());
  CHECK(Parse(json)->num_kv_heads == 1);
  json["alibi"] = true;
  const auto refused = Parse(json);
  REQUIRE(!refused.ok());
  CHECK_THAT(refused.status().ToString(), Contains("alibi") && Contains("FalconForCausalLM"));
}

TEST_CASE("model config: two names that are each other's") {
  Json json = Minimal();
  json["architectures"] = {"Llama4ForCausalLM"};
  json["num_hidden_layers"] = 5;
  json["intermediate_size"] = 48;
  json["intermediate_size_mlp"] = 96;
  json["interleave_moe_layer_step"] = 2;
  json["no_rope_layers"] = Json::array();
  const auto config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->moe_intermediate_size == 48);
  CHECK(config->intermediate_size == 96);
  CHECK(config->mixture_layers == std::vector<bool>{false, true, false, true, false});
  CHECK(config->rope_layers == std::vector<bool>{true, true, true, false, true});
  json["no_rope_layers"] = {0, 1, 1, 1, 1};
  CHECK(Parse(json)->rope_layers == std::vector<bool>{false, true, true, true, true});
  json["no_rope_layers"] = {1, 2};
  CHECK(!Parse(json).ok());
}

TEST_CASE("model config: windows by letters") {
  Json json = Minimal();
  json["architectures"] = {"Exaone4ForCausalLM"};
  json["num_hidden_layers"] = 5;
  json["sliding_window"] = 32;
  json["sliding_window_pattern"] = "LLLG";
  REQUIRE(Parse(json).ok());
  CHECK(Parse(json)->sliding_layers == std::vector<bool>{true, true, true, false, true});
  json["sliding_window_pattern"] = "LX";
  CHECK(!Parse(json).ok());
}

TEST_CASE("model config: the experts of a mixture, in both spellings") {
  const auto mixtral = ReadModelConfig(kModels + "mixtral");
  REQUIRE(mixtral.ok());
  CHECK(mixtral->num_experts == 4);
  CHECK(mixtral->num_experts_per_tok == 2);
  CHECK(mixtral->head_dim == 16);
  CHECK(mixtral->moe_intermediate_size == mixtral->intermediate_size);
  CHECK(mixtral->IsMixture(0));
  const auto qwen3 = ReadModelConfig(kModels + "qwen3_moe");
  REQUIRE(qwen3.ok());
  CHECK(qwen3->num_experts == 8);
  CHECK(qwen3->moe_intermediate_size == 32);
  CHECK(qwen3->mixture_layers == std::vector<bool>{false, true});
  CHECK(qwen3->norm_topk_prob);
  Json json = Minimal();
  json["architectures"] = {"Qwen3MoeForCausalLM"};
  json["num_experts"] = 64;  // transformers 4's name for Qwen3's num_local_experts
  CHECK(Parse(json)->num_experts == 64);
  json["mlp_only_layers"] = {0, 99};
  json["decoder_sparse_step"] = 1;
  CHECK_FALSE(Parse(json)->IsMixture(0));
  CHECK(Parse(json)->IsMixture(1));
  for (const auto& [key, value] : {std::pair<const char*, Json>{"mlp_only_layers", {1, "x"}},
                                   {"mlp_only_layers", 3},
                                   {"decoder_sparse_step", 0}}) {
    Json bad = json;
    bad[key] = value;
    CHECK_THAT(Parse(bad).status().message(), Contains(key));
  }
}

TEST_CASE("model config: latent attention and the experts of DeepSeek's family") {
  const auto config = ReadModelConfig(kModels + "deepseek_v2");
  REQUIRE(config.ok());
  CHECK(config->latent.q_rank == 48);
  CHECK(config->latent.kv_rank == 32);
  CHECK(config->num_heads == 4);
  CHECK(config->num_kv_heads == 1);
  CHECK(config->head_dim == 32 + 16);  // a token's cache
  CHECK(config->rotary_dim == 16);
  CHECK(config->rope.attention_factor == Approx(1.0));
  CHECK(config->rope.softmax_factor == Approx(std::pow(0.1 * 0.707 * std::log(4) + 1, 2)));
  CHECK(config->num_experts == 8);
  CHECK(config->mixture_layers == std::vector<bool>{false, true, true});
  CHECK(config->num_expert_groups == 4);
  CHECK(config->num_chosen_groups == 2);
  CHECK(config->routed_scaling_factor == 4);
  CHECK(config->shared_intermediate_size == 2 * 32);
  Json json = Minimal();
  json["architectures"] = {"DeepseekV3ForCausalLM"};
  json["q_lora_rank"] = nullptr;
  json["first_k_dense_replace"] = 0;
  json["n_routed_experts"] = 16;
  const auto plain = Parse(json);
  REQUIRE(plain.ok());
  CHECK(plain->latent.q_rank == 0);
  CHECK(plain->head_dim == 576);
  CHECK(plain->IsMixture(0));
  CHECK(plain->rope.softmax_factor == 1);
  for (const char* key : {"kv_lora_rank", "qk_rope_head_dim", "first_k_dense_replace", "n_group"}) {
    Json bad = json;
    bad[key] = -3;
    CHECK_THAT(Parse(bad).status().message(), Contains(key));
  }
}

TEST_CASE("model config: keys that each token chooses") {
  Json json = Minimal();
  json["architectures"] = {"GlmMoeDsaForCausalLM"};
  json["num_hidden_layers"] = 7;
  json.update({{"n_routed_experts", 16},
               {"kv_lora_rank", 32},
               {"qk_rope_head_dim", 16},
               {"index_head_dim", 24},
               {"index_n_heads", 4},
               {"index_topk", 64}});
  const auto config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->index.dim == 24);
  CHECK(config->index.num_heads == 4);
  CHECK(config->index.num_keys == 64);
  CHECK(config->index.is_interleaved);
  CHECK(config->head_dim == 32 + 16 + 24);  // a token's cache
  CHECK_FALSE(config->index.IsShared(6));
  CHECK(config->mixture_layers == std::vector<bool>{false, false, false, true, true, true, true});

  Json by_step = json;
  by_step.update({{"index_topk_freq", 3}, {"index_skip_topk_offset", 2}});
  const std::vector<bool> shared = {false, false, true, true, false, true, true};
  CHECK(Parse(by_step)->index.shared_layers == shared);
  Json by_letters = json;
  by_letters["index_topk_pattern"] = "FFSSFSS";
  CHECK(Parse(by_letters)->index.shared_layers == shared);
  Json by_types = json;
  by_types["indexer_types"] = {"full", "full", "shared", "shared", "full", "shared", "shared"};
  by_types["mlp_layer_types"] = {"sparse", "dense", "dense", "dense", "dense", "dense", "sparse"};
  CHECK(Parse(by_types)->index.shared_layers == shared);
  CHECK(Parse(by_types)->mixture_layers ==
        std::vector<bool>{true, false, false, false, false, false, true});

  for (const auto& [key, value] :
       std::vector<std::pair<std::string, Json>>{{"index_head_dim", 8},
                                                 {"index_head_dim", 17},
                                                 {"index_topk", 0},
                                                 {"index_n_heads", -1},
                                                 {"index_n_heads", 60000},
                                                 {"indexer_types", {"full"}},
                                                 {"index_topk_pattern", "SFFFFFF"},
                                                 {"index_topk_pattern", "FFFFXFF"},
                                                 {"mlp_layer_types", {"dense"}},
                                                 {"q_lora_rank", nullptr}}) {
    CAPTURE(key, value.dump());
    Json bad = json;
    bad[key] = value;
    CHECK_THAT(Parse(bad).status().message(), Contains(key));
  }
  Json dense = json;
  dense["architectures"] = {"DeepseekV3ForCausalLM"};
  CHECK(Parse(dense)->index.dim == 0);
}

TEST_CASE("model config: what is not computed of latent attention and its routers is refused") {
  const auto refusal = [](const char* architecture, const std::string& key, const Json& value) {
    Json json = Minimal();
    json["architectures"] = {architecture};
    json["linear_attn_config"] = {{"num_heads", 2}, {"head_dim", 16}, {"kda_layers", {1}}};
    REQUIRE(Parse(json).ok());
    json[key] = value;
    return Parse(json).status().message();
  };
  for (const char* name : {"DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM"}) {
    CAPTURE(name);
    CHECK_THAT(refusal(name, "scoring_func", "softmax"), Contains("scoring_func"));
    CHECK_THAT(refusal(name, "rope_interleave", false), Contains("rope_interleave"));
    CHECK(refusal(name, "scoring_func", "sigmoid") == OkStatus().message());
  }
  CHECK_THAT(refusal("DeepseekV2ForCausalLM", "scoring_func", "sigmoid"), Contains("scoring_func"));
  CHECK_THAT(refusal("KimiLinearForCausalLM", "moe_router_activation_func", "softmax"),
             Contains("moe_router_activation_func"));
  CHECK_THAT(refusal("KimiLinearForCausalLM", "mla_use_nope", false), Contains("mla_use_nope"));
}

TEST_CASE("model config: an mscale of YaRN that is 0 is none") {
  Json json = Minimal();
  json["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 64}};
  const double factor = Parse(json)->rope.attention_factor;
  json["rope_scaling"]["mscale"] = 1;
  json["rope_scaling"]["mscale_all_dim"] = 0;
  const auto config = Parse(json);
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  CHECK(config->rope.attention_factor == factor);
  CHECK(config->rope.softmax_factor == 1);
}

TEST_CASE("model config: latent attention has heads of its own, whatever hidden_size is") {
  Json json = Minimal();
  json["architectures"] = {"DeepseekV3ForCausalLM"};
  json["hidden_size"] = 15 * json["num_attention_heads"].get<int>();
  CHECK(Parse(json).ok());
}

// With windows in layers 0, 1, 3 and 4.
Json UnevenConfigJson() {
  Json json = Minimal();
  json["architectures"] = {"Gemma4ForCausalLM"};
  json["num_hidden_layers"] = 6;
  json["sliding_window_pattern"] = 3;
  json["num_attention_heads"] = 8;
  json["num_key_value_heads"] = 2;
  json["head_dim"] = 16;
  json["global_head_dim"] = 32;
  json["hidden_size_per_layer_input"] = 8;
  json["vocab_size_per_layer_input"] = 100;
  return json;
}

TEST_CASE("model config: layers that differ in their heads") {
  Json json = UnevenConfigJson();
  const auto config = Parse(json);
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  CHECK(config->is_uneven());
  CHECK(config->HeadDimOf(0) == 16);
  CHECK(config->HeadDimOf(2) == 32);
  CHECK(config->KvHeadsOf(2) == 2);
  CHECK(config->rotary_dim == 32);
  CHECK(config->local_rotary_dim == 16);
  CHECK(config->rope.type == RopeType::kProportional);
  CHECK(config->rope.turning_part == 0.25);
  CHECK(config->rope.theta == 1000000);
  CHECK(config->local_rope.theta == 10000);
  CHECK(config->uneven.input_size == 8);
  CHECK(config->tie_word_embeddings);
  CHECK_FALSE(config->IsMixture(0));

  json["num_global_key_value_heads"] = 1;  // only where keys are values
  CHECK(Parse(json)->KvHeadsOf(2) == 2);
  json["attention_k_eq_v"] = true;
  CHECK(Parse(json)->KvHeadsOf(2) == 1);
  CHECK(Parse(json)->KvHeadsOf(0) == 2);
  json["hidden_size_per_layer_input"] = 0;
  CHECK(Parse(json)->uneven.input_size == 0);
  json["use_bidirectional_attention"] = "vision";
  CHECK_FALSE(Parse(json)->is_bidirectional);
  json["layer_types"] =
      Json::array({"sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                   "sliding_attention", "sliding_attention"});
  CHECK(Parse(json)->IsGlobal(5));  // the last layer never has a window
  json["enable_moe_block"] = true;
  json["num_experts"] = 8;
  json["top_k_experts"] = 2;
  json["moe_intermediate_size"] = 24;
  CHECK(Parse(json)->IsMixture(0));
  CHECK(Parse(json)->num_experts_per_tok == 2);
}

// As transformers 5.24 writes it: heads are listed by layer where they differ, without
// global_head_dim.
TEST_CASE("model config: heads of single layers, all those without a window alike") {
  Json json = UnevenConfigJson();
  json["layer_types"] = {"sliding_attention", "sliding_attention", "full_attention",
                         "sliding_attention", "sliding_attention", "full_attention"};
  json.erase("global_head_dim");
  json["attention_k_eq_v"] = true;
  json["per_layer_config"] = Json::object();
  auto config = Parse(json);
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  CHECK(config->HeadDimOf(2) == 16);
  CHECK(config->KvHeadsOf(2) == 2);
  json["per_layer_config"] = {{"2", {{"head_dim", 24}, {"num_key_value_heads", 4}}},
                              {"5", {{"head_dim", 24}, {"num_key_value_heads", 4}}}};
  config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->HeadDimOf(1) == 16);
  CHECK(config->HeadDimOf(5) == 24);
  CHECK(config->KvHeadsOf(1) == 2);
  CHECK(config->KvHeadsOf(5) == 4);
  json["attention_k_eq_v"] = false;  // num_global_key_value_heads has no effect then
  CHECK_THAT(Parse(json).status().message(), Contains("per_layer_config"));
  for (const Json& other :
       {Json{{"2", {{"head_dim", 24}}}}, Json{{"2", {{"head_dim", 24}}}, {"5", {{"head_dim", 32}}}},
        Json{{"2", {{"sliding_window", 8}}}, {"5", {{"sliding_window", 8}}}}}) {
    json["per_layer_config"] = other;
    CHECK_THAT(Parse(json).status().message(), Contains("per_layer_config"));
  }
}

TEST_CASE("model config: layers that read the keys and values of earlier ones") {
  Json json = UnevenConfigJson();
  json["num_kv_shared_layers"] = 3;
  const auto config = Parse(json);
  REQUIRE(config.ok());
  std::vector<int64_t> sources;
  for (int64_t i = 0; i < 6; ++i) sources.push_back(config->KvLayerOf(i));
  CHECK(sources == std::vector<int64_t>{0, 1, 2, 1, 1, 2});
  CHECK(config->InnerSizeOf(5) == 96);
  json["use_double_wide_mlp"] = true;
  CHECK(Parse(json)->InnerSizeOf(2) == 96);
  CHECK(Parse(json)->InnerSizeOf(3) == 192);
}

TEST_CASE("model config: what is not built of layers that differ is refused by its key") {
  const auto refusal = [](const std::string& key, const Json& value) {
    Json json = UnevenConfigJson();
    json[key] = value;
    const auto config = Parse(json);
    CAPTURE(key);
    REQUIRE_FALSE(config.ok());
    return config.status().message();
  };
  for (const int count : {4, 6, 7}) {
    CHECK_THAT(refusal("num_kv_shared_layers", count),
               Contains("num_kv_shared_layers " + std::to_string(count)));
  }
  CHECK_THAT(refusal("vocab_size_per_layer_input", 99), Contains("vocab_size_per_layer_input 99"));
  CHECK_THAT(refusal("use_bidirectional_attention", "all"),
             Contains("use_bidirectional_attention"));
  CHECK_THAT(refusal("use_bidirectional_attention", true), Contains("use_bidirectional_attention"));
  CHECK_THAT(refusal("global_head_dim", 33), Contains("global_head_dim 33"));
  CHECK_THAT(refusal("enable_moe_block", true), Contains("moe_intermediate_size"));
  CHECK_THAT(refusal("per_layer_config", Json::object()), Contains("layer_types"));
  Json json = UnevenConfigJson();
  json["attention_k_eq_v"] = true;
  json["num_global_key_value_heads"] = 3;
  CHECK_THAT(Parse(json).status().message(), Contains("num_global_key_value_heads 3"));
  json["num_attention_heads"] = 66;  // 66 query heads of one would be more than a plan takes
  json["num_global_key_value_heads"] = 1;
  CHECK_THAT(Parse(json).status().message(), Contains("num_key_value_heads"));
}

TEST_CASE("model config: a dense model ignores keys of mixtures") {
  Json json = Minimal();
  json["num_experts"] = 128;
  json["num_local_experts"] = "none";
  json["mlp_only_layers"] = 3;
  const auto config = Parse(json);
  REQUIRE(config.ok());
  CHECK(config->num_experts == 0);
  CHECK_FALSE(config->IsMixture(0));
}

TEST_CASE("model config: architectures that tie the head to the embedding by default") {
  Json json = Minimal();
  json.erase("tie_word_embeddings");
  CHECK_FALSE(Parse(json)->tie_word_embeddings);
  for (const char* name :
       {"GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "GPT2LMHeadModel"}) {
    json["architectures"] = {name};
    CHECK(Parse(json)->tie_word_embeddings);
  }
  CHECK(Parse(json)->rotary_dim == 0);
}

TEST_CASE("model config: eos ids of generation_config take precedence, one or several") {
  Json json = Minimal();
  json["eos_token_id"] = 7;
  CHECK(Parse(json)->eos_token_ids == std::vector<TokenId>{7});
  CHECK(Parse(json, R"({"eos_token_id":[3,4]})")->eos_token_ids == std::vector<TokenId>{3, 4});
  CHECK(Parse(json, R"({"temperature":1})")->eos_token_ids == std::vector<TokenId>{7});
}

TEST_CASE("model config: an eos id outside of the vocabulary is none") {
  Json json = Minimal();
  json["eos_token_id"] = {100, 7, -1};
  CHECK(Parse(json)->eos_token_ids == std::vector<TokenId>{7});
  CHECK(Parse(json, R"({"eos_token_id":151645})")->eos_token_ids == std::vector<TokenId>{7});
  json["eos_token_id"] = 100;
  CHECK(Parse(json)->eos_token_ids.empty());
}

TEST_CASE("model config: an error names the key, its value and what is allowed") {
  CHECK_THAT(Refusal("vocab_size", nullptr), Contains("vocab_size is missing"));
  CHECK_THAT(Refusal("vocab_size", 0), Contains("vocab_size is 0"));
  CHECK_THAT(Refusal("vocab_size", 1e30), Contains("vocab_size"));
  CHECK_THAT(Refusal("hidden_size", "64"), Contains("hidden_size is \"64\""));
  CHECK_THAT(Refusal("num_key_value_heads", 3), Contains("multiple of num_key_value_heads"));
  CHECK_THAT(Refusal("head_dim", 15), Contains("even"));
  CHECK_THAT(Refusal("architectures", Json::array()), Contains("architectures"));
  CHECK_THAT(Refusal("rms_norm_eps", -1), Contains("rms_norm_eps"));
  CHECK_THAT(Refusal("tie_word_embeddings", "yes"), Contains("true or false"));
  CHECK_THAT(Refusal("torch_dtype", "int8"), Contains("int8") && Contains("bfloat16"));
  CHECK_THAT(Refusal("eos_token_id", "</s>"), Contains("eos_token_id") && Contains("</s>"));
  CHECK_THAT(Refusal("partial_rotary_factor", 1.5), Contains("partial_rotary_factor"));
  CHECK_THAT(Refusal("rope_scaling", {{"rope_type", "spiral"}, {"factor", 2}}),
             Contains("spiral") &&
                 Contains("default, dynamic, linear, llama3, longrope, mrope, proportional, su, "
                          "yarn"));
  CHECK_THAT(Refusal("rope_scaling", {{"rope_type", "linear"}}), Contains("factor is missing"));
  CHECK_THAT(Refusal("quantization_config", 4), Contains("quantization_config: must be an object"));
  CHECK_THAT(Refusal("scale_attn_weights", 1), Contains("true or false"));
  CHECK_THAT(Refusal("use_bidirectional_attention", 1), Contains("true or false"));
  CHECK_THAT(Refusal("rope_parameters", 3), Contains("rope_parameters"));
}

TEST_CASE("model config: --hf-overrides replaces keys of config.json, also nested ones") {
  const std::string folder = kModels + "llama_rope_linear";
  const auto usual = ReadModelConfig(folder);
  REQUIRE(usual.ok());
  const auto changed = ReadModelConfig(
      folder, R"({"max_position_embeddings": 77, "rope_scaling": {"factor": 16.0}})");
  INFO(changed.status().message());
  REQUIRE(changed.ok());
  CHECK(changed->max_position_embeddings == 77);
  CHECK(changed->rope.type == usual->rope.type);
  CHECK(changed->rope.factor == 16);
  CHECK(changed->vocab_size == usual->vocab_size);
  CHECK_THAT(ReadModelConfig(folder, "[]").status().message(), Contains("--hf-overrides"));
  CHECK_THAT(ReadModelConfig(folder, R"({"vocab_size": "many"})").status().message(),
             Contains("vocab_size"));
}

TEST_CASE("model config: text that is not JSON, and a folder without config.json") {
  CHECK_THAT(ParseModelConfig("{", "").status().message(), Contains("config.json"));
  CHECK_THAT(ParseModelConfig(std::string(100'000, '['), "").status().message(), Contains("deep"));
  const auto missing = ReadModelConfig("/nonexistent/model");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.status().code() == StatusCode::kNotFound);
  CHECK_THAT(missing.status().message(), Contains("/nonexistent/model/config.json"));
}

}  // namespace
}  // namespace tandem
