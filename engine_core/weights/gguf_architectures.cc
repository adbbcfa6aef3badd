#include "engine_core/weights/gguf_architectures.h"

#include <algorithm>
#include <string>

#include "common/strings.h"
#include "gguf/known_names.h"

namespace tandem {
namespace {

constexpr GgufModuleName kTopNames[] = {
    {"backbone.embeddings", "token_embd"},
    {"backbone.norm_f", "output_norm"},
    {"lm_head", "output"},
    {"model.embed_tokens", "token_embd"},
    {"model.embed_tokens_per_layer", "per_layer_token_embd"},
    {"model.embedding_norm", "token_embd_norm"},
    {"model.final_layernorm", "output_norm"},
    {"model.norm", "output_norm"},
    {"model.per_layer_model_projection", "per_layer_model_proj"},
    {"model.per_layer_projection_norm", "per_layer_proj_norm"},
    {"transformer.ln_f", "output_norm"},
    {"transformer.wpe", "position_embd"},
    {"transformer.wte", "token_embd"},
};

// Of most architectures. Of an expert or a head the number is left out.
constexpr GgufModuleName kLayerNames[] = {
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"pre_ff_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"self_attn.k_b_proj", "attn_k_b"},
    {"self_attn.v_b_proj", "attn_v_b"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.experts.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.up_proj", "ffn_up_exps"},
    {"mlp.experts.down_proj", "ffn_down_exps"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.router.layer", "ffn_gate_inp"},
    {"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"},
    {"block_sparse_moe.experts.w1", "ffn_gate_exps"},
    {"block_sparse_moe.experts.w3", "ffn_up_exps"},
    {"block_sparse_moe.experts.w2", "ffn_down_exps"},
    {"shared_mlp.gate_proj", "ffn_gate_shexp"},
    {"shared_mlp.up_proj", "ffn_up_shexp"},
    {"shared_mlp.down_proj", "ffn_down_shexp"},
    {"feed_forward.gate_proj", "ffn_gate"},
    {"feed_forward.up_proj", "ffn_up"},
    {"feed_forward.down_proj", "ffn_down"},
    {"feed_forward.router", "ffn_gate_inp"},
    {"feed_forward.experts.gate_proj", "ffn_gate_exps"},
    {"feed_forward.experts.up_proj", "ffn_up_exps"},
    {"feed_forward.experts.down_proj", "ffn_down_exps"},
};

// Below what stands in the place of attention, which architectures call by one of these names.
constexpr std::string_view kStateModules[] = {"linear_attn.", "mamba.", "mixer."};
constexpr GgufModuleName kStateNames[] = {
    {"A_log", "ssm_a"},
    {"D", "ssm_d"},
    {"dt_bias", "ssm_dt.bias"},
    {"in_proj", "ssm_in"},
    {"in_proj_qkvz", "ssm_in"},
    {"in_proj_qkv", "attn_qkv"},
    {"in_proj_z", "attn_gate"},
    {"in_proj_ba", "ssm_ba"},
    {"in_proj_a", "ssm_alpha"},
    {"in_proj_b", "ssm_beta"},
    {"conv1d", "ssm_conv1d"},
    {"norm", "ssm_norm"},
    {"out_proj", "ssm_out"},
    {"x_proj", "ssm_x"},
    {"dt_proj", "ssm_dt"},
    {"dt_layernorm", "ssm_dt_norm"},
    {"b_layernorm", "ssm_b_norm"},
    {"c_layernorm", "ssm_c_norm"},
};

// Norms after attention and MLP.
constexpr GgufModuleName kNormsAfter[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
};

// The norm after attention is the MLP's, by another name.
constexpr GgufModuleName kPostAttentionNorm[] = {
    {"post_attention_layernorm", "post_attention_norm"},
};

// Those of its index.
constexpr GgufModuleName kDeepseek32Names[] = {
    {"self_attn.indexer.wq_b", "indexer.attn_q_b"},
    {"self_attn.indexer.wk", "indexer.attn_k"},
    {"self_attn.indexer.weights_proj", "indexer.proj"},
    {"self_attn.indexer.k_norm", "indexer.k_norm"},
};

constexpr GgufModuleName kFalconH1Names[] = {
    {"pre_ff_layernorm.weight", "ffn_norm"},
};

constexpr GgufModuleName kGemma4Names[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
    {"layer_scalar", "layer_output_scale.weight"},
    {"per_layer_input_gate", "inp_gate"},
    {"per_layer_projection", "proj"},
    {"post_per_layer_input_norm", "post_norm"},
    {"router.proj", "ffn_gate_inp"},
    {"router.scale", "ffn_gate_inp.scale"},
    {"router.per_expert_scale", "ffn_down_exps.scale"},
    {"experts.gate_proj", "ffn_gate_up_exps", 0},
    {"experts.up_proj", "ffn_gate_up_exps", 1},
    {"experts.down_proj", "ffn_down_exps"},
};

constexpr GgufModuleName kGlm4Names[] = {
    {"post_self_attn_layernorm", "post_attention_norm"},
    {"post_mlp_layernorm", "post_ffw_norm"},
};

constexpr GgufModuleName kGpt2Names[] = {
    {"ln_1", "attn_norm"}, {"attn.c_attn", "attn_qkv"}, {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"},  {"mlp.c_fc", "ffn_up"},      {"mlp.c_proj", "ffn_down"},
};

constexpr GgufModuleName kGptOssNames[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"mlp.router", "ffn_gate_inp"},
};

constexpr GgufModuleName kHunyuanNames[] = {
    {"self_attn.query_layernorm", "attn_q_norm"},
    {"self_attn.key_layernorm", "attn_k_norm"},
};

constexpr GgufModuleName kLfm2Names[] = {
    {"operator_norm", "attn_norm"},
    {"ffn_norm", "ffn_norm"},
    {"self_attn.q_layernorm", "attn_q_norm"},
    {"self_attn.k_layernorm", "attn_k_norm"},
    {"self_attn.out_proj", "attn_output"},
    {"conv.in_proj", "shortconv.in_proj"},
    {"conv.conv", "shortconv.conv"},
    {"conv.out_proj", "shortconv.out_proj"},
    {"feed_forward.w1", "ffn_gate"},
    {"feed_forward.w3", "ffn_up"},
    {"feed_forward.w2", "ffn_down"},
    {"feed_forward.gate", "ffn_gate_inp"},
    {"feed_forward.expert_bias", "exp_probs_b.bias"},
    {"feed_forward.experts.w1", "ffn_gate_exps"},
    {"feed_forward.experts.w3", "ffn_up_exps"},
    {"feed_forward.experts.w2", "ffn_down_exps"},
};

constexpr GgufModuleName kMamba2Names[] = {
    {"norm", "attn_norm"},
};

constexpr GgufModuleName kNemotronHNames[] = {
    {"norm", "attn_norm"},
    {"mixer.q_proj", "attn_q"},
    {"mixer.k_proj", "attn_k"},
    {"mixer.v_proj", "attn_v"},
    {"mixer.o_proj", "attn_output"},
    {"mixer.up_proj", "ffn_up"},
    {"mixer.down_proj", "ffn_down"},
    {"mixer.gate", "ffn_gate_inp"},
    {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mixer.experts.up_proj", "ffn_up_exps"},
    {"mixer.experts.down_proj", "ffn_down_exps"},
    {"mixer.shared_experts.up_proj", "ffn_up_shexp"},
    {"mixer.shared_experts.down_proj", "ffn_down_shexp"},
    {"mixer.fc1_latent_proj", "ffn_latent_down"},
    {"mixer.fc2_latent_proj", "ffn_latent_up"},
};

constexpr GgufModuleName kPhiNames[] = {
    {"self_attn.dense", "attn_output"},
    {"mlp.fc1", "ffn_up"},
    {"mlp.fc2", "ffn_down"},
};

constexpr GgufModuleName kStarcoder2Names[] = {
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
};

// Of mixtures in DeepSeek's spelling.
constexpr GgufKey kRoutedKeys[] = {
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"expert_weights_scale", "routed_scaling_factor", true},
};

// What such files leave out.
constexpr std::string_view kRoutedConfig =
    R"({"first_k_dense_replace": 0, "n_shared_experts": 0, "n_group": 1, "topk_group": 1,
        "routed_scaling_factor": 1, "norm_topk_prob": false, "q_lora_rank": null})";

constexpr GgufKey kCohereKeys[] = {
    {"logit_scale", "logit_scale", true},
};

constexpr GgufKey kGraniteKeys[] = {
    {"attention.scale", "attention_multiplier", true},
    {"embedding_scale", "embedding_multiplier", true},
    {"residual_scale", "residual_multiplier", true},
    {"logit_scale", "logits_scaling", true},
    {"expert_shared_feed_forward_length", "shared_intermediate_size"},
};

constexpr GgufKey kJambaKeys[] = {
    {"expert_count", "num_experts"},
};

constexpr GgufKey kLfm2Keys[] = {
    {"shortconv.l_cache", "conv_L_cache"},
    {"leading_dense_block_count", "num_dense_layers"},
    {"expert_count", "num_experts"},
};

constexpr GgufKey kNemotronHKeys[] = {
    {"expert_shared_count", "n_shared_experts"},
    {"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
    {"expert_group_count", "n_group"},
    {"expert_weights_scale", "routed_scaling_factor", true},
    {"moe_latent_size", "moe_latent_size"},
};

constexpr GgufKey kSharedExpertKeys[] = {
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
};

// By name.
constexpr GgufArchitecture kArchitectures[] = {
    {.name = "cohere2", .hf_name = "Cohere2ForCausalLM", .keys = kCohereKeys},
    {.name = "command-r", .hf_name = "CohereForCausalLM", .keys = kCohereKeys},
    {.name = "deepseek2",
     .hf_name = "DeepseekV2ForCausalLM",
     .hf_mixture = "DeepseekV2ForCausalLM",
     .hf_biased_mixture = "DeepseekV3ForCausalLM",
     .has_latents = true,
     .keys = kRoutedKeys,
     .config = kRoutedConfig},
    {.name = "deepseek32",
     .hf_name = "DeepseekV32ForCausalLM",
     .hf_mixture = "DeepseekV32ForCausalLM",
     .layer_names = kDeepseek32Names,
     .has_latents = true,
     .keys = kRoutedKeys,
     .config = kRoutedConfig},
    {.name = "ernie4_5", .hf_name = "Ernie4_5ForCausalLM"},
    {.name = "ernie4_5-moe",
     .hf_name = "Ernie4_5_MoeForCausalLM",
     .hf_mixture = "Ernie4_5_MoeForCausalLM",
     .keys = kRoutedKeys,
     .config = kRoutedConfig},
    {.name = "exaone4", .hf_name = "Exaone4ForCausalLM", .layer_names = kNormsAfter},
    // Its multipliers are in its matrices.
    {.name = "falcon-h1",
     .hf_name = "FalconH1ForCausalLM",
     .layer_names = kFalconH1Names,
     .states = RecurrentKind::kScan},
    {.name = "gemma", .hf_name = "GemmaForCausalLM", .norm_offset = 1},
    {.name = "gemma2",
     .hf_name = "Gemma2ForCausalLM",
     .layer_names = kNormsAfter,
     .norm_offset = 1,
     .config = R"({"attn_logit_softcapping": 50, "final_logit_softcapping": 30})"},
    {.name = "gemma3",
     .hf_name = "Gemma3ForCausalLM",
     .layer_names = kNormsAfter,
     .norm_offset = 1},
    {.name = "gemma4",
     .hf_name = "Gemma4ForCausalLM",
     .hf_mixture = "Gemma4ForCausalLM",
     .layer_names = kGemma4Names,
     .is_uneven = true},
    {.name = "glm4", .hf_name = "Glm4ForCausalLM", .layer_names = kGlm4Names},
    {.name = "glm4moe",
     .hf_name = "Glm4MoeForCausalLM",
     .hf_mixture = "Glm4MoeForCausalLM",
     .layer_names = kPostAttentionNorm,
     .keys = kRoutedKeys,
     .config = kRoutedConfig},
    {.name = "gpt-oss",
     .hf_name = "GptOssForCausalLM",
     .hf_mixture = "GptOssForCausalLM",
     .layer_names = kGptOssNames,
     .config = R"({"rope_scaling": {"truncate": false}})"},
    {.name = "gpt2", .hf_name = "GPT2LMHeadModel", .layer_names = kGpt2Names},
    {.name = "granite",
     .hf_name = "GraniteForCausalLM",
     .has_paired_rows = true,
     .keys = kGraniteKeys},
    {.name = "granitehybrid",
     .hf_name = "GraniteMoeHybridForCausalLM",
     .hf_mixture = "GraniteMoeHybridForCausalLM",
     .has_paired_rows = true,
     .states = RecurrentKind::kScan,
     .keys = kGraniteKeys},
    {.name = "granitemoe",
     .hf_name = "GraniteMoeForCausalLM",
     .hf_mixture = "GraniteMoeForCausalLM",
     .has_paired_rows = true,
     .keys = kGraniteKeys},
    {.name = "hunyuan-dense", .hf_name = "HunYuanDenseV1ForCausalLM", .layer_names = kHunyuanNames},
    {.name = "jamba",
     .hf_name = "JambaForCausalLM",
     .hf_mixture = "JambaForCausalLM",
     .states = RecurrentKind::kSelective,
     .keys = kJambaKeys},
    {.name = "lfm2",
     .hf_name = "Lfm2ForCausalLM",
     .layer_names = kLfm2Names,
     .states = RecurrentKind::kShortConv,
     .keys = kLfm2Keys,
     .config = R"({"block_auto_adjust_ff_dim": false})"},
    {.name = "lfm2moe",
     .hf_name = "Lfm2MoeForCausalLM",
     .hf_mixture = "Lfm2MoeForCausalLM",
     .layer_names = kLfm2Names,
     .states = RecurrentKind::kShortConv,
     .keys = kLfm2Keys},
    {.name = "llama",
     .hf_name = "LlamaForCausalLM",
     .hf_mixture = "MixtralForCausalLM",
     .has_paired_rows = true},
    {.name = "mamba2",
     .hf_name = "Mamba2ForCausalLM",
     .layer_names = kMamba2Names,
     .states = RecurrentKind::kScan},
    {.name = "minimax-m2", .hf_name = "MiniMaxM2ForCausalLM", .hf_mixture = "MiniMaxM2ForCausalLM"},
    {.name = "nemotron_h",
     .hf_name = "NemotronHForCausalLM",
     .layer_names = kNemotronHNames,
     .states = RecurrentKind::kScan},
    {.name = "nemotron_h_moe",
     .hf_name = "NemotronHForCausalLM",
     .hf_mixture = "NemotronHForCausalLM",
     .layer_names = kNemotronHNames,
     .states = RecurrentKind::kScan,
     .keys = kNemotronHKeys},
    {.name = "olmo2", .hf_name = "Olmo2ForCausalLM", .layer_names = kNormsAfter},
    {.name = "olmoe", .hf_name = "OlmoeForCausalLM", .hf_mixture = "OlmoeForCausalLM"},
    {.name = "phi2", .hf_name = "PhiForCausalLM", .layer_names = kPhiNames},
    {.name = "phi3", .hf_name = "Phi3ForCausalLM"},
    // Files have no key for Phi-3.5-MoE's factors of cosines and sines.
    {.name = "phimoe",
     .hf_name = "PhiMoEForCausalLM",
     .hf_mixture = "PhiMoEForCausalLM",
     .config = R"({"rope_scaling": {"short_mscale": 1.243163121016122,
                                    "long_mscale": 1.243163121016122}})"},
    {.name = "qwen2", .hf_name = "Qwen2ForCausalLM", .has_qkv_bias = true},
    {.name = "qwen2moe",
     .hf_name = "Qwen2MoeForCausalLM",
     .hf_mixture = "Qwen2MoeForCausalLM",
     .keys = kSharedExpertKeys},
    {.name = "qwen3", .hf_name = "Qwen3ForCausalLM"},
    // Value heads of a key head lie apart, so that ggml can repeat the keys as a whole.
    {.name = "qwen35",
     .hf_name = "Qwen3_5ForCausalLM",
     .layer_names = kPostAttentionNorm,
     .norm_offset = 1,
     .states = RecurrentKind::kDelta,
     .config = R"({"linear_key_heads_take_turns": true})"},
    {.name = "qwen35moe",
     .hf_name = "Qwen3_5MoeForCausalLM",
     .hf_mixture = "Qwen3_5MoeForCausalLM",
     .layer_names = kPostAttentionNorm,
     .norm_offset = 1,
     .states = RecurrentKind::kDelta,
     .keys = kSharedExpertKeys,
     .config = R"({"linear_key_heads_take_turns": true})"},
    {.name = "qwen3moe",
     .hf_name = "Qwen3MoeForCausalLM",
     .hf_mixture = "Qwen3MoeForCausalLM",
     .config = R"({"norm_topk_prob": true})"},
    {.name = "qwen3next",
     .hf_name = "Qwen3NextForCausalLM",
     .hf_mixture = "Qwen3NextForCausalLM",
     .layer_names = kPostAttentionNorm,
     .norm_offset = 1,
     .states = RecurrentKind::kDelta,
     .keys = kSharedExpertKeys},
    {.name = "seed_oss", .hf_name = "SeedOssForCausalLM", .layer_names = kPostAttentionNorm},
    {.name = "smollm3", .hf_name = "SmolLM3ForCausalLM", .has_paired_rows = true},
    {.name = "stablelm", .hf_name = "StableLmForCausalLM"},
    {.name = "starcoder2", .hf_name = "Starcoder2ForCausalLM", .layer_names = kStarcoder2Names},
};

// Null: there is none of that name.
const GgufModuleName* FindName(std::span<const GgufModuleName> names, std::string_view hf) {
  for (const GgufModuleName& name : names) {
    if (name.hf == hf) return &name;
  }
  return nullptr;
}

// Takes the number out of "mlp.experts.3.up_proj" and of "self_attn.k_b_proj.3".
std::optional<int64_t> TakeIndex(std::string* module) {
  for (size_t dot = module->find('.'); dot != std::string::npos; dot = module->find('.', dot + 1)) {
    const size_t end = std::min(module->find('.', dot + 1), module->size());
    const auto index =
        ParseNumber<int64_t>(std::string_view(*module).substr(dot + 1, end - dot - 1));
    if (!index) continue;
    module->erase(dot, end - dot);
    return index;
  }
  return std::nullopt;
}

struct LayerModule {
  int64_t layer;
  std::string module;
};

// "model.layers.3.mlp.up_proj.weight" is {3, "mlp.up_proj.weight"}.
std::optional<LayerModule> ParseLayerModule(std::string_view name) {
  for (const std::string_view prefix : {"model.layers.", "backbone.layers.", "transformer.h."}) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = name.substr(prefix.size());
    const size_t dot = rest.find('.');
    if (dot == std::string_view::npos) return std::nullopt;
    const auto layer = ParseNumber<int64_t>(rest.substr(0, dot));
    if (!layer) return std::nullopt;
    return LayerModule{*layer, std::string(rest.substr(dot + 1))};
  }
  return std::nullopt;
}

// A module of a layer, or a tensor.
const GgufModuleName* FindLayerName(const GgufArchitecture& architecture, std::string_view hf) {
  if (const GgufModuleName* const own = FindName(architecture.layer_names, hf)) return own;
  if (const GgufModuleName* const name = FindName(kLayerNames, hf)) return name;
  for (const std::string_view prefix : kStateModules) {
    if (hf.starts_with(prefix)) return FindName(kStateNames, hf.substr(prefix.size()));
  }
  return nullptr;
}

}  // namespace

StatusOr<const GgufArchitecture*> FindGgufArchitecture(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const std::string_view name, metadata.String("general.architecture", ""));
  return FindKnownName(std::span<const GgufArchitecture>(kArchitectures), "general.architecture",
                       name);
}

std::optional<GgufTensorPlace> FindGgufPlace(const GgufArchitecture& architecture,
                                             std::string_view hf_name) {
  const size_t dot = hf_name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  GgufTensorPlace place;
  const GgufModuleName* name = FindName(kTopNames, hf_name.substr(0, dot));
  std::string suffix(hf_name.substr(dot));
  if (name == nullptr) {
    auto parsed = ParseLayerModule(hf_name);
    if (!parsed) return std::nullopt;
    place.name = "blk." + std::to_string(parsed->layer) + ".";
    std::string& module = parsed->module;
    name = FindLayerName(architecture, module);
    if (name != nullptr) {
      suffix.clear();
    } else if (module.ends_with(suffix)) {
      module.resize(module.size() - suffix.size());
      place.index = TakeIndex(&module);
      name = FindLayerName(architecture, module);
    }
  }
  if (name == nullptr) return std::nullopt;
  const std::string_view module = name->gguf;
  place.name += std::string(module) + suffix;
  place.half = name->half;
  place.is_paired = architecture.has_paired_rows && (module == "attn_q" || module == "attn_k");
  place.is_norm = module.ends_with("_norm") && !module.starts_with("ssm_");
  place.is_decay = module == "ssm_a";
  return place;
}

}  // namespace tandem
