#include "engine_core/weights/vision_config.h"

#include <nlohmann/json.hpp>
#include <set>

#include "engine_core/models/registry.h"
#include "engine_core/weights/nested_weights.h"
#include "engine_core/weights/open_weights.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::json;

Json Qwen(const std::string& architecture) {
  return Json{{"architectures", {architecture}},
              {"image_token_id", 9},
              {"text_config",
               {{"vocab_size", 100},
                {"hidden_size", 64},
                {"intermediate_size", 96},
                {"num_hidden_layers", 4},
                {"num_attention_heads", 4},
                {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {4, 2, 2}}}}}},
              {"vision_config", Json::object()}};
}

StatusOr<ModelConfig> Parse(const Json& json) { return ParseModelConfig(json.dump(), ""); }

std::string Refusal(Json json, const char* key, const Json& value) {
  json["vision_config"][key] = value;
  const auto config = Parse(json);
  REQUIRE_FALSE(config.ok());
  return config.status().message();
}

TEST_CASE("vision config: absent keys have the family's defaults") {
  const auto qwen3 = Parse(Qwen("Qwen3VLForConditionalGeneration"));
  REQUIRE(qwen3.ok());
  CHECK(qwen3->architecture == "Qwen3ForCausalLM");
  CHECK(qwen3->vision.family == VisionFamily::kQwen3);
  CHECK(qwen3->vision.image_token_id == 9);
  CHECK(qwen3->vision.num_layers == 27);
  CHECK(qwen3->vision.head_dim() == 72);
  CHECK(qwen3->vision.num_positions == 2304);
  CHECK(qwen3->vision.patch_numbers() == 1536);
  CHECK(qwen3->rope.sections == std::vector<int64_t>{4, 2, 2});
  CHECK_FALSE(qwen3->rope.has_interleaved_sections);
  const auto qwen25 = Parse(Qwen("Qwen2_5_VLForConditionalGeneration"));
  REQUIRE(qwen25.ok());
  CHECK(qwen25->vision.family == VisionFamily::kQwen25);
  CHECK(qwen25->vision.full_attention_layers == std::vector<int64_t>{7, 15, 23, 31});
  CHECK(qwen25->vision.patch_numbers() == 1176);
  Json gemma = Qwen("Gemma3ForConditionalGeneration");
  gemma["image_token_index"] = 7;
  gemma["vision_config"] = {{"num_hidden_layers", 27}, {"num_attention_heads", 16},
                            {"hidden_size", 1152},     {"image_size", 896},
                            {"patch_size", 14},        {"intermediate_size", 4304}};
  const auto siglip = Parse(gemma);
  REQUIRE(siglip.ok());
  CHECK(siglip->vision.family == VisionFamily::kSiglip);
  CHECK(siglip->vision.image_token_id == 7);
  CHECK(siglip->vision.tokens_per_image == 256);
  CHECK(siglip->vision.patch_numbers() == 588);
  CHECK(siglip->vision.merge_size == 4);
  CHECK(siglip->vision.out_size == 64);
}

TEST_CASE("vision config: text models, and others without one, have no tower") {
  Json json = Qwen("Qwen3VLForConditionalGeneration");
  json.erase("vision_config");
  CHECK(Parse(json)->vision.family == VisionFamily::kNone);
  CHECK(Parse(Qwen("Qwen3ForCausalLM"))->vision.family == VisionFamily::kNone);
}

TEST_CASE("vision config: what does not fit is refused by name") {
  const Json json = Qwen("Qwen3VLForConditionalGeneration");
  CHECK_THAT(Refusal(json, "depth", "two"), Contains("vision_config") && Contains("depth"));
  CHECK_THAT(Refusal(json, "num_position_embeddings", 15),
             Contains("num_position_embeddings") && Contains("square"));
  CHECK_THAT(Refusal(json, "num_heads", 7), Contains("num_heads") && Contains("1152"));
  CHECK_THAT(Refusal(json, "deepstack_visual_indexes", {3, 3}), Contains("rising"));
  CHECK_THAT(Refusal(json, "deepstack_visual_indexes", {27}), Contains("below 27"));
  const Json gemma = Qwen("Gemma3ForConditionalGeneration");
  CHECK_THAT(Refusal(gemma, "image_size", 225), Contains("image_size") && Contains("225"));
  CHECK_THAT(Refusal(gemma, "image_size", 240), Contains("mm_tokens_per_image"));
  Json sections = json;
  sections["text_config"]["rope_scaling"]["mrope_section"] = {4, 4};
  CHECK_THAT(Parse(sections).status().message(), Contains("mrope_section"));
}

// Weights that have names alone.
class Names final : public Weights {
 public:
  explicit Names(std::set<std::string> names) : names_(std::move(names)) {}
  StatusOr<WeightTensor> Get(std::string_view name, int64_t, int64_t) override {
    return NotFoundError(std::string(name));
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t, int64_t, int64_t,
                                      int64_t) override {
    return NotFoundError(std::string(name));
  }
  bool Has(std::string_view name) const override { return names_.contains(std::string(name)); }
  std::vector<std::string> Unread() const override { return {names_.begin(), names_.end()}; }

 private:
  std::set<std::string> names_;
};

TEST_CASE("a tower's tensors keep their names beside a text model's") {
  const std::string text = GENERATE("model.language_model.", "language_model.model.", "model.");
  const std::string tower = GENERATE("model.visual.x", "visual.x", "model.vision_tower.x",
                                     "vision_tower.x", "model.multi_modal_projector.x");
  CAPTURE(text, tower);
  const auto weights = TextWeights(std::make_unique<Names>(
      std::set<std::string>{text + "embed_tokens.weight", text + "norm.weight", tower}));
  CHECK(weights->Has("model.norm.weight"));
  CHECK(weights->Has(tower));
  CHECK_FALSE(weights->Has("model.other"));
}

TEST_CASE("a checkpoint's tensors may lack their class's first prefix") {
  struct Case {
    std::string own, stored, table;
  };
  const auto [own, stored, table] =
      GENERATE(Case{"transformer.", "", "word_embeddings.weight"},
               Case{"transformer.", "transformer.", "word_embeddings.weight"},
               Case{"model.decoder.", "decoder.", "embed_tokens.weight"},
               Case{"model.decoder.", "model.decoder.", "embed_tokens.weight"},
               Case{"model.", "", "embed_tokens.weight"});
  CAPTURE(own, stored);
  const auto weights = TextWeights(std::make_unique<Names>(
      std::set<std::string>{stored + table, stored + "h.0.weight", "lm_head.weight"}));
  CHECK(weights->Has(own + "h.0.weight"));
  CHECK(weights->Has("lm_head.weight"));
  CHECK_FALSE(weights->Has(own + "h.1.weight"));
}

TEST_CASE("tensors that published checkpoints have beside a model's are no news") {
  const auto unused = [](const std::string& name) {
    ModelConfig config;
    config.num_layers = 2;
    return UnusedTensors(Names({name}), config).size();
  };
  for (const char* name :
       {"gpt_neox.layers.0.attention.bias", "gpt_neox.layers.0.attention.masked_bias",
        "model.mtp_block.0.mlp.up_proj.weight", "model.mtp_layers.0.norm.weight", "mtp.norm.weight",
        "model.layers.2.mlp.up_proj.weight"}) {
    CAPTURE(name);
    CHECK(unused(name) == 0);
  }
  CHECK(unused("model.layers.1.self_attn.q_proj.bias") == 1);
}

}  // namespace
}  // namespace tandem
