#pragma once

// The shape of a model's vision tower, from config.json of an HF folder: vision_config, and the
// keys beside it about images in a text.
// Thread: any; values. Failure: the Status names the key, its value and what is allowed.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

// kQwen3: of Qwen3-VL and Qwen3.5. kSiglip: of Gemma 3.
enum class VisionFamily : uint8_t { kNone, kQwen25, kQwen3, kSiglip };

struct VisionConfig {
  VisionFamily family = VisionFamily::kNone;  // kNone: the model takes no images
  int32_t image_token_id = -1;                // stands for each row of an image in a prompt
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 0;
  std::string hidden_act;
  double norm_epsilon = 1e-6;
  int64_t patch_size = 0;           // pixels of a patch's side
  int64_t temporal_patch_size = 1;  // how often an image's pixels stand in a patch
  // So many patches of each direction become one row.
  int64_t merge_size = 1;
  int64_t out_size = 0;                   // numbers of a row: the text model's hidden size
  int64_t num_positions = 0;              // Qwen3: rows of the table of positions, a square
  std::vector<int64_t> deepstack_layers;  // Qwen3: after which text layers take features as well
  int64_t window_size = 0;                // Qwen2.5: pixels of an attention window's side
  std::vector<int64_t> full_attention_layers;  // Qwen2.5: without windows
  int64_t image_size = 0;                      // SigLIP: pixels of an image's side
  int64_t tokens_per_image = 0;                // SigLIP: rows, a square

  int64_t head_dim() const { return hidden_size / num_heads; }
  // Multiplications that a patch takes in a layer, with what a patch of num_keys sees.
  double LayerWork(int64_t num_keys) const;
  // Numbers of a patch: of its three colours.
  int64_t patch_numbers() const { return 3 * temporal_patch_size * patch_size * patch_size; }
};

// json: the whole file. Without a vision_config, or of another architecture: family kNone.
Status ReadVisionConfig(const nlohmann::json& json, std::string_view architecture,
                        VisionConfig* config);

}  // namespace tandem
