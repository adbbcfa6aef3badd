#pragma once

// The shape of a model, from a GGUF file's keys (gguf_config.h), or from config.json and
// generation_config.json of an HF folder, in either
// spelling: transformers 4 (rope_theta, rope_scaling, torch_dtype) or 5 (rope_parameters, dtype).
// A text model's part may stand below text_config. What an architecture does differently with the
// keys is in its ConfigRules; models/registry.cc has those of every architecture.
// Thread: any; values. Failure: the Status names the file and the key that is missing, has the
// wrong type or is out of range; so it does for an unknown rope type.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "engine_core/weights/checkpoint_quantization.h"
#include "engine_core/weights/recurrent_config.h"
#include "engine_core/weights/rope_config.h"
#include "engine_core/weights/vision_config.h"
#include "kernels/tensor.h"

namespace tandem {

// Which layers are mixtures of experts: none, all, those that decoder_sparse_step and
// mlp_only_layers choose, or those from first_k_dense_replace on, every moe_layer_freq-th, as
// DeepSeek's family has them, whose other keys are also its own; or with the same keys those that
// layer_types calls moe.
enum class MixtureLayers { kNone, kAll, kByKeys, kFromLayer, kByTypes };

// Attention over one latent vector per token (models/latent_attention.h).
struct LatentConfig {
  int64_t q_rank = 0;    // of the queries' own latent; 0: they have none
  int64_t kv_rank = 0;   // 0: the model has no latent attention
  int64_t nope_dim = 0;  // of a head's query and key: without position, and with
  int64_t pe_dim = 0;
  int64_t value_dim = 0;  // of a head
};

// Latent attention over keys that each token chooses (models/key_index.h).
struct KeyIndexConfig {
  int64_t dim = 0;  // of its heads and its key; 0: tokens attend to all keys
  int64_t num_heads = 0;
  int64_t num_keys = 0;             // that a token chooses
  bool is_interleaved = false;      // it rotates pairs of neighbours
  std::vector<bool> shared_layers;  // those that use the choice of the layer before; empty: none

  bool IsShared(int64_t layer) const {
    return !shared_layers.empty() && shared_layers[static_cast<size_t>(layer)];
  }
};

// Gemma 4, whose layers differ in more than their window (weights/uneven_config.h).
struct UnevenConfig {
  int64_t global_head_dim = 0;  // of layers without a window; 0: the model's layers are alike
  int64_t num_global_kv_heads = 0;
  bool keys_are_values = false;  // in those layers, before their norms
  // These last layers read the keys and values of the last layer of their kind before them all;
  // their MLPs may be twice as wide.
  int64_t num_sharing_layers = 0;
  bool has_wide_mlps = false;
  int64_t input_size = 0;  // of what a token brings to each layer besides; 0: nothing
  int64_t num_inputs = 0;  // token ids that have it
};

// The rotation in layers with a window: that of the others, one of its own, or, where
// rope_parameters does not name one, that of the others without its scaling.
enum class LocalRope { kSame, kOwn, kUnscaled };

// What HF's classes of one architecture do with the keys of config.json, where they differ from
// most.
struct ConfigRules {
  bool has_window = false;  // reads sliding_window
  LocalRope local_rope = LocalRope::kSame;
  // A token sees as many keys before itself; else its own is counted.
  bool window_is_before_token = false;
  bool has_chunks = false;    // reads attention_chunk_size
  bool has_rope = true;       // else it learns its positions
  bool has_gated_mlp = true;  // three matrices, else two
  // An encoder of BERT's family: each token sees all others, and some keys have other names.
  bool is_encoder = false;
  bool has_latent = false;  // latent attention
  bool has_index = false;   // over the keys that each token chooses
  bool is_uneven = false;   // has the keys of UnevenConfig
  RecurrentKind recurrent = RecurrentKind::kNone;
  StatePlace states = StatePlace::kForAttention;
  // Puts keys for which renames are not enough into the others' spelling; null: there are none.
  Status (*spell)(nlohmann::json* keys) = nullptr;
  MixtureLayers mixtures = MixtureLayers::kNone;
  std::string_view renames = "{}";    // a JSON object: keys of the file, and what they are here
  std::string_view required = "{}";   // a JSON object: keys, and the only values that are built
  std::string_view defaults = "{}";   // a JSON object: keys that the file leaves out
  std::string_view overrides = "{}";  // a JSON object: keys whatever the file has for them
};

// The rules of an architecture, or why there are none.
using FindConfigRules = StatusOr<ConfigRules> (*)(std::string_view architecture);

struct ModelConfig {
  std::string architecture;  // architectures[0]
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  // Of the cache; one with a latent, whose size, with that of its index key, head_dim is.
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  LatentConfig latent;
  KeyIndexConfig index;
  UnevenConfig uneven;        // head_dim and num_kv_heads are then those of layers with a window
  RecurrentConfig recurrent;  // its layers have a state and no keys and values
  bool attn_output_gate = false;
  int64_t rotary_dim = 0;  // even, <= head_dim; RoPE leaves the others as they are. gpt2: 0
  // How many keys a token sees in the layers that have a window, its own included; 0 when no layer
  // has one. The keys of the file that switch the window on or choose its layers are already
  // applied.
  int64_t sliding_window = 0;
  bool names_window = false;         // the file has one, which may be of no layer
  std::vector<bool> sliding_layers;  // [num_layers]
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double query_pre_attn_scalar = 0;   // gemma: scores are divided by its root; 0: not given
  double attn_logit_softcapping = 0;  // 0: none
  double final_logit_softcapping = 0;
  // Tokens see those after them, so a text is computed in one pass and generates nothing.
  bool is_bidirectional = false;
  int64_t num_token_types = 0;     // BERT: which of two texts a token belongs to
  int64_t position_offset = 0;     // RoBERTa: where its learned positions begin
  bool scale_attn_weights = true;  // gpt2: divide scores by the root of head_dim
  bool scale_attn_by_inverse_layer_idx = false;
  // [num_layers], which layers are mixtures of experts. Empty for dense architectures: their files'
  // keys for mixtures are ignored.
  std::vector<bool> mixture_layers;
  int64_t num_experts = 0;
  int64_t num_experts_per_tok = 0;
  int64_t moe_intermediate_size = 0;  // of one expert
  int64_t moe_latent_size = 0;        // of what goes into the experts and comes out; 0: hidden_size
  bool norm_topk_prob = false;        // scale the chosen experts' weights to sum to 1
  // Experts are chosen from the best of equal groups; weights are multiplied by the factor.
  int64_t num_expert_groups = 1;
  int64_t num_chosen_groups = 1;
  double routed_scaling_factor = 1;
  std::string topk_method;
  int64_t shared_intermediate_size = 0;  // of the expert that every token has; 0: none
  double router_jitter_noise = 0;
  double swiglu_limit = 0;
  // Which layers rotate q and k, by no_rope_layers or no_rope_layer_interval; empty: all.
  std::vector<bool> rope_layers;
  bool use_qk_norm = false;
  bool attention_out_bias = false;
  bool lm_head_bias = false;
  bool use_parallel_residual = false;
  bool new_decoder_architecture = false;                                         // falcon
  double embedding_multiplier = 1, residual_multiplier = 1, logits_scaling = 1;  // granite
  double attention_multiplier = 0;  // of scores, in place of the root of head_dim; 0: not given
  double logit_scale = 1;           // cohere
  // falcon-h1: of what goes into attention and what comes out, of its keys, of an MLP's gate and of
  // what comes out of the MLP
  double attention_in_multiplier = 1, attention_out_multiplier = 1, key_multiplier = 1;
  double mlp_gate_multiplier = 1, mlp_out_multiplier = 1;
  // llama 4: tokens of a chunk, within which layers that rotate attend; by how much the queries of
  // the others grow with their position.
  int64_t attention_chunk_size = 0;
  bool attn_temperature_tuning = false;  // generation_config's alone, as in vLLM
  double attn_scale = 0, floor_scale = 0;
  std::string hidden_act = "silu";
  bool has_gated_mlp = true;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  RopeConfig rope;
  RopeConfig local_rope;  // for layers with a window, where ConfigRules gives them one
  int64_t local_rotary_dim = 0;
  VisionConfig vision;
  CheckpointQuantization quantization;
  DType dtype = DType::kBf16;          // the stored type of the weights, according to the file
  std::vector<TokenId> eos_token_ids;  // from generation_config, else from config

  // The window of one layer; 0: none.
  int32_t WindowOf(int64_t layer) const {
    const bool has_window = sliding_window > 0 && sliding_layers[static_cast<size_t>(layer)];
    return has_window ? static_cast<int32_t>(sliding_window) : 0;
  }
  // The chunk of positions within which the tokens of a layer attend; 0: it has none.
  int32_t ChunkOf(int64_t layer) const {
    return HasRope(layer) ? static_cast<int32_t>(attention_chunk_size) : 0;
  }
  // Whether its tokens see recent keys alone.
  bool IsLocal(int64_t layer) const { return WindowOf(layer) > 0 || ChunkOf(layer) > 0; }
  bool is_uneven() const { return uneven.global_head_dim > 0; }
  bool IsGlobal(int64_t layer) const { return is_uneven() && WindowOf(layer) == 0; }
  int64_t HeadDimOf(int64_t layer) const {
    return IsGlobal(layer) ? uneven.global_head_dim : head_dim;
  }
  int64_t KvHeadsOf(int64_t layer) const {
    return IsGlobal(layer) ? uneven.num_global_kv_heads : num_kv_heads;
  }
  // The layer whose keys and values it reads: mostly itself.
  int64_t KvLayerOf(int64_t layer) const;
  int64_t num_layer_inputs() const { return num_layers * uneven.input_size; }  // of a token
  int64_t InnerSizeOf(int64_t layer) const {
    return uneven.has_wide_mlps && KvLayerOf(layer) != layer ? 2 * intermediate_size
                                                             : intermediate_size;
  }
  bool HasRope(int64_t layer) const {
    return rope_layers.empty() || rope_layers[static_cast<size_t>(layer)];
  }
  bool ScalesMlp() const { return mlp_gate_multiplier != 1 || mlp_out_multiplier != 1; }
  bool IsMixture(int64_t layer) const {
    return !mixture_layers.empty() && mixture_layers[static_cast<size_t>(layer)];
  }
};

// Of a folder or a GGUF file.
StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir, FindConfigRules find_rules);

// The same from the files' text; `generation_config` may be empty.
StatusOr<ModelConfig> ParseModelConfig(std::string_view config, std::string_view generation_config,
                                       FindConfigRules find_rules);

}  // namespace tandem
