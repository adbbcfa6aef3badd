#include "engine_core/models/registry.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::json;

// A config with the keys that no architecture has a default for.
Json ConfigOf(const std::string& architecture) {
  return Json{
      {"architectures", {architecture}}, {"vocab_size", 100},       {"hidden_size", 64},
      {"intermediate_size", 96},         {"num_hidden_layers", 12}, {"num_attention_heads", 4}};
}

StatusOr<ModelConfig> Parse(const Json& json) { return ParseModelConfig(json.dump(), ""); }

std::vector<std::string> Architectures() {
  std::vector<std::string> names;
  const std::string known = KnownArchitectures();
  for (size_t begin = 0; begin < known.size();) {
    const size_t end = std::min(known.find(", ", begin), known.size());
    names.push_back(known.substr(begin, end - begin));
    begin = end + 2;
  }
  return names;
}

TEST_CASE(
    "registry: the rules of every architecture make a config of the keys that have no default") {
  const std::vector<std::string> names = Architectures();
  REQUIRE(names.size() >= 12);
  // MLPs without a gate, and their activations.
  const std::map<std::string, std::string> plain_mlps = {
      {"ArceeForCausalLM", "relu2"},
      {"BertForSequenceClassification", "gelu"},
      {"BertForTokenClassification", "gelu"},
      {"BertModel", "gelu"},
      {"BloomForCausalLM", "gelu_new"},
      {"FalconForCausalLM", "gelu"},
      {"GPT2LMHeadModel", "gelu_new"},
      {"ColBERTJinaRobertaModel", "gelu"},
      {"GPTNeoXForCausalLM", "gelu"},
      {"HF_ColBERT", "gelu"},
      {"NemotronHForCausalLM", "relu2"},
      {"OPTForCausalLM", "relu"},
      {"PhiForCausalLM", "gelu_new"},
      {"RobertaForSequenceClassification", "gelu"},
      {"RobertaForTokenClassification", "gelu"},
      {"RobertaModel", "gelu"},
      {"Starcoder2ForCausalLM", "gelu_pytorch_tanh"},
      {"XLMRobertaForSequenceClassification", "gelu"},
      {"XLMRobertaForTokenClassification", "gelu"},
      {"XLMRobertaModel", "gelu"}};
  const std::set<std::string> mixtures = {
      "GptOssForCausalLM",     "GraniteMoeForCausalLM",
      "Llama4ForCausalLM",     "GraniteMoeSharedForCausalLM",
      "Qwen2MoeForCausalLM",   "HunYuanMoEV1ForCausalLM",
      "MiniMaxM2ForCausalLM",  "MixtralForCausalLM",
      "OlmoeForCausalLM",      "PhiMoEForCausalLM",
      "PhimoeForCausalLM",     "Qwen3MoeForCausalLM",
      "Qwen3NextForCausalLM",  "Qwen3VLMoeForConditionalGeneration",
      "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"};
  for (const std::string& name : names) {
    CAPTURE(name);
    Json keys = ConfigOf(name);
    if (name == "KimiLinearForCausalLM") {
      keys["linear_attn_config"] = {{"num_heads", 4}, {"head_dim", 8}, {"kda_layers", {1, 2}}};
    }
    if (name == "NemotronHForCausalLM") {
      keys["hybrid_override_pattern"] = std::string(keys["num_hidden_layers"].get<size_t>(), '-');
    }
    const auto config = Parse(keys);
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    CHECK(config->architecture == name);
    const auto plain = plain_mlps.find(name);
    CHECK(config->has_gated_mlp == (plain == plain_mlps.end()));
    CHECK(config->IsMixture(0) == (mixtures.count(name) > 0));
    CHECK(config->hidden_act == (name.starts_with("Gemma") ? "gelu_pytorch_tanh"
                                 : name.find("ModernBert") != std::string::npos ? "gelu"
                                 : plain != plain_mlps.end()                    ? plain->second
                                                                                : "silu"));
  }
}

TEST_CASE("registry: an unknown architecture is refused before its other keys are read") {
  const Json json = {{"architectures", {"PerceptronForCausalLM"}}};
  CHECK_THAT(Parse(json).status().message(), Contains("PerceptronForCausalLM") &&
                                                 Contains("LlamaForCausalLM, ") &&
                                                 Contains(", Qwen3ForCausalLM"));
}

TEST_CASE("registry: a default gives way to the file, an override does not") {
  Json json = ConfigOf("Gemma2ForCausalLM");
  CHECK(Parse(json)->query_pre_attn_scalar == 256);
  json["query_pre_attn_scalar"] = 144;
  json["hidden_activation"] = "relu";
  json["tie_word_embeddings"] = false;
  const auto config = Parse(json);
  CHECK(config->query_pre_attn_scalar == 144);
  CHECK(config->hidden_act == "gelu_pytorch_tanh");
  CHECK(config->tie_word_embeddings);
}

TEST_CASE("registry: keys that a file leaves out are those of HF's classes") {
  const auto of = [](const char* name) { return *Parse(ConfigOf(name)); };
  CHECK(of("CwmForCausalLM").rope.type == RopeType::kLlama3);
  CHECK(of("CwmForCausalLM").WindowOf(0) == 8192);
  CHECK(of("GptOssForCausalLM").rope.type == RopeType::kYarn);
  CHECK_FALSE(of("GptOssForCausalLM").rope.truncate);
  CHECK(of("GptOssForCausalLM").rope.theta == 150000);
  CHECK(of("Gemma2ForCausalLM").attn_logit_softcapping == 50);
  CHECK(of("Gemma2ForCausalLM").final_logit_softcapping == 30);
  CHECK(of("Glm4ForCausalLM").attention_bias);
  CHECK(of("Glm4MoeLiteForCausalLM").routed_scaling_factor == 1.8);
  CHECK(of("GraniteForCausalLM").attention_multiplier == 1);
  CHECK(of("GraniteMoeForCausalLM").attention_multiplier == 1);
  CHECK_FALSE(of("GraniteMoeHybridForCausalLM").tie_word_embeddings);
  CHECK(of("MiniMaxM2ForCausalLM").rope.theta == 5000000);
  CHECK(of("Olmo3ForCausalLM").rope.theta == 500000);
  CHECK(of("Qwen3VLMoeForConditionalGeneration").rope.theta == 500000);
  CHECK(of("Qwen3VLForConditionalGeneration").rope.theta == 500000);
  CHECK(of("Qwen2_5_VLForConditionalGeneration").rope.theta == 1000000);
  CHECK(of("Qwen2_5_VLForConditionalGeneration").rms_norm_eps == 1e-5);
  CHECK(of("Qwen2VLForConditionalGeneration").rope.theta == 1000000);
  for (const char* name : {"FalconH1ForCausalLM", "Qwen3NextForCausalLM", "Qwen3_5ForCausalLM"}) {
    CHECK(of(name).rope.theta == 10000);
  }

  Json vision = ConfigOf("Qwen2VLForConditionalGeneration");
  vision["rope_theta"] = 3;
  CHECK(Parse(vision)->rope.theta == 3);

  // In transformers 5's spelling, and switched off.
  Json json = ConfigOf("GptOssForCausalLM");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1000}};
  CHECK(Parse(json)->rope.type == RopeType::kDefault);
  CHECK(Parse(json)->rope.theta == 1000);
  json.erase("rope_parameters");
  json["rope_scaling"] = nullptr;
  CHECK(Parse(json)->rope.type == RopeType::kDefault);
}

TEST_CASE("registry: Qwen3's dense layers start with a window late, the mixtures' do not") {
  for (const auto& [name, window] :
       {std::pair{"Qwen3ForCausalLM", 0}, {"Qwen3MoeForCausalLM", 9}}) {
    CAPTURE(name);
    Json json = ConfigOf(name);
    json["use_sliding_window"] = true;
    json["sliding_window"] = 9;
    json["max_window_layers"] = 3;
    const auto config = Parse(json);
    CHECK(config->WindowOf(0) == window);
    CHECK(config->WindowOf(3) == 9);
  }
}

}  // namespace
}  // namespace tandem
