#include "engine_core/weights/vision_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine_core/weights/json_fields.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxDim = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxTokenId = (int64_t{1} << 31) - 1;

// What HF's classes have where the file leaves a key out.
struct FamilyRow {
  std::string_view architecture;
  VisionFamily family;
  std::string_view defaults;
};
constexpr std::string_view kQwen3Defaults =
    R"({"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16,
        "hidden_act": "gelu_pytorch_tanh", "patch_size": 16, "temporal_patch_size": 2,
        "spatial_merge_size": 2, "out_hidden_size": 3584, "num_position_embeddings": 2304})";
constexpr FamilyRow kFamilies[] = {
    {"Gemma3ForConditionalGeneration", VisionFamily::kSiglip,
     R"({"depth": 12, "hidden_size": 768, "intermediate_size": 3072, "num_heads": 12,
         "hidden_act": "gelu_pytorch_tanh", "patch_size": 16, "image_size": 224})"},
    {"Qwen2_5_VLForConditionalGeneration", VisionFamily::kQwen25,
     R"({"depth": 32, "hidden_size": 3584, "intermediate_size": 3420, "num_heads": 16,
         "hidden_act": "silu", "patch_size": 14, "temporal_patch_size": 2,
         "spatial_merge_size": 2, "out_hidden_size": 3584, "window_size": 112,
         "fullatt_block_indexes": [7, 15, 23, 31]})"},
    {"Qwen3VLForConditionalGeneration", VisionFamily::kQwen3, kQwen3Defaults},
    {"Qwen3VLMoeForConditionalGeneration", VisionFamily::kQwen3, kQwen3Defaults},
    {"Qwen3_5ForConditionalGeneration", VisionFamily::kQwen3, kQwen3Defaults},
    {"Qwen3_5MoeForConditionalGeneration", VisionFamily::kQwen3, kQwen3Defaults},
};

// Rising indices of the tower's layers.
Status ReadLayers(const Json& json, const char* key, int64_t num_layers,
                  std::vector<int64_t>* layers) {
  const Json* list = Find(json, key);
  if (list == nullptr) return OkStatus();
  const auto is_layer = [&](const Json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(num_layers);
  };
  if (!list->is_array() || !std::all_of(list->begin(), list->end(), is_layer)) {
    return BadValue(key, *list, "a list of layers below " + std::to_string(num_layers));
  }
  *layers = list->get<std::vector<int64_t>>();
  if (!std::is_sorted(layers->begin(), layers->end(), std::less_equal<>())) {
    return BadValue(key, *list, "rising");
  }
  return OkStatus();
}

// Which names several families have for one thing.
void Respell(Json* vision) {
  constexpr std::pair<const char*, const char*> kNames[] = {{"num_hidden_layers", "depth"},
                                                            {"num_attention_heads", "num_heads"}};
  for (const auto& [theirs, ours] : kNames) {
    if (Find(*vision, theirs) != nullptr) (*vision)[ours] = (*vision)[theirs];
  }
}

Status ReadTower(const Json& vision, VisionConfig* config) {
  for (const auto& [key, size] :
       {std::pair{"depth", &config->num_layers}, std::pair{"hidden_size", &config->hidden_size},
        std::pair{"intermediate_size", &config->intermediate_size},
        std::pair{"num_heads", &config->num_heads}, std::pair{"patch_size", &config->patch_size}}) {
    RETURN_IF_ERROR(
        ReadSize(vision, key, size == &config->num_layers ? kMaxLayers : kMaxDim, -1, size));
  }
  for (const auto& [key, size] : {std::pair{"temporal_patch_size", &config->temporal_patch_size},
                                  std::pair{"spatial_merge_size", &config->merge_size},
                                  std::pair{"out_hidden_size", &config->out_size},
                                  std::pair{"num_position_embeddings", &config->num_positions},
                                  std::pair{"window_size", &config->window_size},
                                  std::pair{"image_size", &config->image_size}}) {
    RETURN_IF_ERROR(ReadSize(vision, key, kMaxDim, *size, size));
  }
  RETURN_IF_ERROR(ReadString(vision, "hidden_act", &config->hidden_act));
  RETURN_IF_ERROR(ReadPositive(vision, "layer_norm_eps", &config->norm_epsilon));
  RETURN_IF_ERROR(ReadLayers(vision, "deepstack_visual_indexes", config->num_layers,
                             &config->deepstack_layers));
  RETURN_IF_ERROR(ReadLayers(vision, "fullatt_block_indexes", config->num_layers,
                             &config->full_attention_layers));
  if (config->family == VisionFamily::kQwen3) {
    int64_t side = 1;
    while (side * side < config->num_positions) ++side;
    if (side * side != config->num_positions) {
      return BadValue("num_position_embeddings", config->num_positions, "a square");
    }
  }
  // Rotation turns pairs of two halves, one for each direction.
  const int64_t parts = config->family == VisionFamily::kSiglip ? 1 : 4;
  if (config->hidden_size % (config->num_heads * parts) != 0) {
    return InvalidArgumentError("hidden_size " + std::to_string(config->hidden_size) +
                                " must be a multiple of " + std::to_string(parts) +
                                " times num_heads " + std::to_string(config->num_heads));
  }
  return OkStatus();
}

// A square number of rows that its patches can be pooled to.
Status ReadPooling(const Json& json, VisionConfig* config) {
  RETURN_IF_ERROR(ReadSize(json, "mm_tokens_per_image", kMaxDim, 256, &config->tokens_per_image));
  if (config->image_size % config->patch_size != 0) {
    return InvalidArgumentError("image_size " + std::to_string(config->image_size) +
                                " of vision_config must be a multiple of patch_size " +
                                std::to_string(config->patch_size));
  }
  const int64_t side = config->image_size / config->patch_size;
  int64_t pooled = 1;
  while (pooled * pooled < config->tokens_per_image) ++pooled;
  if (pooled * pooled == config->tokens_per_image && side % pooled == 0 && side > 0) {
    config->merge_size = side / pooled;
    return OkStatus();
  }
  return InvalidArgumentError("mm_tokens_per_image " + std::to_string(config->tokens_per_image) +
                              " must be the square of a divisor of " + std::to_string(side) +
                              ", the patches of an image's side");
}

}  // namespace

double VisionConfig::LayerWork(int64_t num_keys) const {
  const double num_mlp_matrices = family == VisionFamily::kQwen25 ? 3 : 2;
  return static_cast<double>(hidden_size) *
         (static_cast<double>(4 * hidden_size + 2 * num_keys) +
          num_mlp_matrices * static_cast<double>(intermediate_size));
}

Status ReadVisionConfig(const Json& json, std::string_view architecture, VisionConfig* config) {
  const auto* row = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                 [&](const auto& r) { return r.architecture == architecture; });
  const Json* given = Find(json, "vision_config");
  if (row == std::end(kFamilies) || given == nullptr) return OkStatus();
  if (!given->is_object()) return BadValue("vision_config", *given, "an object");
  config->family = row->family;
  Json vision = Json::parse(row->defaults);
  Json own = *given;
  Respell(&own);
  vision.update(own);
  const Status status = ReadTower(vision, config);
  if (!status.ok()) return status.WithContext("vision_config");
  const bool is_siglip = config->family == VisionFamily::kSiglip;
  int64_t id = is_siglip ? 262144 : 151655;
  RETURN_IF_ERROR(
      ReadSize(json, is_siglip ? "image_token_index" : "image_token_id", kMaxTokenId, id, &id));
  config->image_token_id = static_cast<int32_t>(id);
  return is_siglip ? ReadPooling(json, config) : OkStatus();
}

}  // namespace tandem
