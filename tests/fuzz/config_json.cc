// config.json, and generation_config.json after a NUL, by rules that stand for those of all
// architectures: refused with a message, or a shape whose numbers are in range.

#include <string>

#include "common/check.h"
#include "engine_core/weights/model_config.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

StatusOr<ConfigRules> Rules(std::string_view architecture) {
  if (architecture == "Window" || architecture.ends_with("ForConditionalGeneration")) {
    return ConfigRules{.has_window = true,
                       .defaults = R"({"sliding_window": 4096, "sliding_window_pattern": 6})"};
  }
  if (architecture == "Mixture") {
    return ConfigRules{.has_window = true,
                       .mixtures = MixtureLayers::kByKeys,
                       .defaults = R"({"num_experts": 8, "num_experts_per_tok": 2})"};
  }
  if (architecture == "Gpt") {
    return ConfigRules{
        .has_rope = false, .has_gated_mlp = false, .overrides = R"({"tie_word_embeddings": true})"};
  }
  if (architecture == "Plain") return ConfigRules{};
  return InvalidArgumentError("an unknown architecture");
}

void CheckShape(const ModelConfig& config) {
  CHECK(config.num_layers > 0 && config.vocab_size > 0 && config.hidden_size > 0);
  CHECK(config.num_kv_heads > 0 && config.num_heads % config.num_kv_heads == 0);
  CHECK(config.head_dim > 0 && config.rotary_dim <= config.head_dim);
  CHECK_EQ(static_cast<int64_t>(config.sliding_layers.size()), config.num_layers);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    CHECK(config.WindowOf(layer) >= 0 && config.ChunkOf(layer) >= 0);
    (void)config.IsMixture(layer);
  }
  if (config.vision.family != VisionFamily::kNone) {
    const VisionConfig& vision = config.vision;
    CHECK(vision.num_layers > 0 && vision.head_dim() > 0 && vision.patch_numbers() > 0);
    CHECK(vision.image_token_id > 0 && vision.merge_size > 0);
    for (const int64_t layer : vision.deepstack_layers) CHECK(layer < vision.num_layers);
  }
  for (const TokenId id : config.eos_token_ids) CHECK(id >= 0 && id < config.vocab_size);
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  FuzzInput input(data, size);
  const std::string_view config_json = input.Until('\0');
  const auto config = ParseModelConfig(config_json, input.Rest(), Rules);
  if (config.ok()) {
    CheckShape(*config);
  } else {
    CHECK(!config.status().message().empty());
  }
  return 0;
}
