#pragma once

// The shape of a model, from config.json and generation_config.json of an HF folder, in either
// spelling: transformers 4 (rope_theta, rope_scaling, torch_dtype) or 5 (rope_parameters, dtype).
// Thread: any; values. Failure: missing files and keys, wrong types and values out of range are
// named in the Status; so is a rope type that is not in the table. The architecture is checked by
// models/registry.cc, which knows them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "kernels/tensor.h"

namespace tandem {

enum class RopeType { kDefault, kLinear, kLlama3, kYarn };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  double factor = 1;
  int64_t original_max_position_embeddings = 0;      // llama3, yarn
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: round the correction range
  double attention_factor = 1;  // multiplies cos and sin; yarn's default is already resolved
};

struct ModelConfig {
  std::string architecture;  // architectures[0]
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;      // even, <= head_dim; dimensions beyond it are not turned
  int64_t sliding_window = 0;  // keys a token sees where the architecture says so; 0: all
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double query_pre_attn_scalar = 0;  // gemma: attention scores are scaled by its root; 0: not given
  double attn_logit_softcapping = 0;  // 0: none
  double final_logit_softcapping = 0;
  double rope_local_base_freq = 10000;  // gemma 3: theta of layers with a window
  int64_t sliding_window_pattern = 6;   // gemma 3: every so many layers one has no window
  std::vector<bool> sliding_layers;     // layer_types; empty: not given
  int64_t num_experts = 0;  // mixtures; where not given, the architecture's loader knows
  int64_t num_experts_per_tok = 0;
  int64_t moe_intermediate_size = 0;
  int64_t decoder_sparse_step = 1;       // every so many layers one is a mixture
  std::vector<int64_t> mlp_only_layers;  // these are none
  bool norm_topk_prob = false;           // the chosen experts' weights are made to sum to 1
  std::string hidden_act = "silu";
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  RopeConfig rope;
  DType dtype = DType::kBf16;          // what the weights are said to be stored in
  std::vector<TokenId> eos_token_ids;  // generation_config's, else config's
};

StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir);

// The same from text; `generation_config` may be empty.
StatusOr<ModelConfig> ParseModelConfig(std::string_view config, std::string_view generation_config);

}  // namespace tandem
