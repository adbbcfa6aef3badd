#pragma once

// How a model rotates queries and keys by their position, from config.json in either spelling:
// transformers 4 (rope_theta, rope_scaling, and rope_local_base_freq for layers with a window) or 5
// (rope_parameters, flat or one object per layer type).
// Thread: any; values. Failure: the Status names an unknown type, a missing key, or a value out of
// range.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "common/status.h"

namespace tandem {

// kDynamic equals kDefault up to max_position_embeddings; longer contexts are refused.
// kProportional: pairs over the whole head, of which the first part alone turns.
enum class RopeType { kDefault, kLinear, kLlama3, kYarn, kLongRope, kDynamic, kProportional };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  double factor = 1;
  double turning_part = 1;                           // proportional: of the pairs
  int64_t original_max_position_embeddings = 0;      // llama3, yarn, longrope
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: round the correction range
  // longrope: a divisor for each pair of dimensions, for contexts up to the original length (short)
  // and beyond it (long).
  std::vector<double> short_factor, long_factor;
  double attention_factor = 1;      // multiplies cos and sin; defaults are already applied
  double llama_4_scaling_beta = 0;  // ministral 3: queries grow with their position
  double softmax_factor = 1;        // yarn: multiplies the scores of latent attention
  // longrope: the same for one list, where the config has its own.
  std::optional<double> short_attention_factor, long_attention_factor;
  // M-RoPE: how many pairs turn by a token's time, height and width. One run each; interleaved,
  // they take turns from the first pair on, and what is left turns by time. Empty: a model of text.
  std::vector<int64_t> sections;
  bool has_interleaved_sections = false;

  bool operator==(const RopeConfig&) const = default;
};

struct RopeConfigs {
  RopeConfig rope;
  RopeConfig local_rope;        // for layers with a window
  bool has_local_rope = false;  // the config has one for them
  int64_t rotary_dim = 0;
};

StatusOr<RopeConfigs> ReadRope(const nlohmann::json& json, int64_t head_dim,
                               int64_t max_position_embeddings);

}  // namespace tandem
