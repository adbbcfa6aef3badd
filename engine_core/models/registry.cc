#include "engine_core/models/registry.h"

#include <utility>
#include <vector>

#include "engine_core/weights/hf_overrides.h"
#include "engine_core/weights/spell_keys.h"

namespace tandem {

// Each in the file of its name.
using StageLoader = StatusOr<std::unique_ptr<Stage>>(const LoadContext&);
StageLoader LoadArcee, LoadBert, LoadJinaRoberta, LoadModernBert, LoadBloom, LoadCohere,
    LoadCohere2, LoadDeepseekV2, LoadDeepseekV3, LoadErnie45, LoadErnie45Moe, LoadExaone4,
    LoadFalcon, LoadFalconH1, LoadGemma, LoadGemma2, LoadGemma3, LoadGemma4, LoadGlm, LoadGlm4,
    LoadGlm4Moe, LoadGpt2, LoadGptNeoX, LoadGptOss, LoadGranite, LoadGraniteMoeHybrid, LoadHunyuan,
    LoadHunyuanMoe, LoadJamba, LoadKimiLinear, LoadLfm2, LoadLlama, LoadLlama4, LoadMamba2,
    LoadMiniMaxM2, LoadMinistral3, LoadMixtral, LoadNemotronH, LoadOlmo2, LoadOlmo3, LoadOlmoe,
    LoadOpt, LoadPhi, LoadPhi3, LoadPhiMoe, LoadQwen2, LoadQwen2Moe, LoadQwen3, LoadQwen3Moe,
    LoadQwen3Next, LoadQwen3VlMoe, LoadSeedOss, LoadSmolLm3, LoadStableLm, LoadStarcoder2;

namespace {

struct ArchitectureRow {
  std::string_view name;  // config.json's architectures[0]
  StageLoader* load;
  ConfigRules rules = {};
};

constexpr ConfigRules kBertRules = {.has_rope = false,
                                    .has_gated_mlp = false,
                                    .is_encoder = true,
                                    .defaults = R"({"rms_norm_eps": 1e-12, "hidden_act": "gelu",
                                                    "type_vocab_size": 2,
                                                    "max_position_embeddings": 512})"};
constexpr ConfigRules kModernBertRules = {
    .has_window = true,
    .local_rope = LocalRope::kOwn,
    .is_encoder = true,
    .defaults = R"({"rms_norm_eps": 1e-5, "hidden_act": "gelu", "rope_theta": 160000,
                    "rope_local_base_freq": 10000, "sliding_window": 128,
                    "global_attn_every_n_layers": 3, "max_position_embeddings": 8192,
                    "type_vocab_size": null})",
    // Published files say absolute.
    .overrides = R"({"position_embedding_type": "rotary"})"};
constexpr ConfigRules kRobertaRules = {.has_rope = false,
                                       .has_gated_mlp = false,
                                       .is_encoder = true,
                                       .defaults = R"({"rms_norm_eps": 1e-5, "hidden_act": "gelu",
                                                       "type_vocab_size": 1, "pad_token_id": 1,
                                                       "max_position_embeddings": 514})"};
// Positions begin after the padding's here, too, though none is learned.
constexpr ConfigRules kJinaRobertaRules = {
    .has_gated_mlp = false,
    .is_encoder = true,
    .renames = R"({"rotary_emb_base": "rope_theta", "rotary_emb_dim": "rotary_dim"})",
    .defaults = R"({"rms_norm_eps": 1e-5, "hidden_act": "gelu", "type_vocab_size": 1,
                    "pad_token_id": 1, "max_position_embeddings": 8194,
                    "position_embedding_type": "rotary"})"};

constexpr std::string_view kGemmaOverrides =
    R"({"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true})";

// Of Qwen3.5, whose experts' weights always sum to 1 and which has no other MLP beside them.
constexpr std::string_view kQwen35Defaults =
    R"({"attn_output_gate": true, "full_attention_interval": 4, "partial_rotary_factor": 0.25,
        "head_dim": 256, "num_experts": 256, "num_experts_per_tok": 8,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "intermediate_size": 512})";
constexpr std::string_view kQwen35Overrides = R"({"norm_topk_prob": true})";
constexpr ConfigRules kQwen3MoeRules = {
    .has_window = true,
    .mixtures = MixtureLayers::kByKeys,
    .defaults = R"({"use_sliding_window": false, "sliding_window": 4096, "num_experts": 128,
                      "num_experts_per_tok": 8, "moe_intermediate_size": 768})",
    // A window is in all layers or in none.
    .overrides = R"({"max_window_layers": null})"};
// Whose class always makes the chosen experts' weights sum to 1.
constexpr ConfigRules kQwen3VlMoeRules = [] {
  ConfigRules rules = kQwen3MoeRules;
  rules.defaults = R"({"rope_theta": 500000, "num_experts": 60, "num_experts_per_tok": 4,
                       "moe_intermediate_size": 1408})";
  rules.overrides = R"({"use_sliding_window": false, "max_window_layers": null,
                        "norm_topk_prob": true})";
  return rules;
}();
constexpr ConfigRules kPhiMoeRules = {
    .has_window = true,
    .mixtures = MixtureLayers::kAll,
    .defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 1000000, "num_experts_per_tok": 2,
                    "num_local_experts": 16, "router_jitter_noise": 0.01})"};

// Of DeepSeek V3's mixture and latent attention, which others have, too.
constexpr std::string_view kDeepseekV3Required =
    R"({"scoring_func": "sigmoid", "rope_interleave": true})";

constexpr ConfigRules kGraniteMoeRules = {
    .spell = SpellGraniteMoe,
    .mixtures = MixtureLayers::kByKeys,
    .defaults = R"({"num_local_experts": 8, "num_experts_per_tok": 2,
                    "attention_multiplier": 1})"};

// By name. What a row does not say is as in Llama.
constexpr ArchitectureRow kArchitectures[] = {
    {"ArceeForCausalLM",
     LoadArcee,
     {.has_gated_mlp = false, .defaults = R"({"rms_norm_eps": 1e-5, "hidden_act": "relu2"})"}},
    {"BertForSequenceClassification", LoadBert, kBertRules},
    {"BertForTokenClassification", LoadBert, kBertRules},
    {"BertModel", LoadBert, kBertRules},
    {"BloomForCausalLM",
     LoadBloom,
     {.has_rope = false,
      .has_gated_mlp = false,
      .renames = R"({"n_embed": "hidden_size"})",
      .required = R"({"apply_residual_connection_post_layernorm": false})",
      .defaults = R"({"layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})",
      .overrides = R"({"hidden_act": "gelu_new"})"}},
    {"ColBERTJinaRobertaModel", LoadJinaRoberta, kJinaRobertaRules},
    {"ColBERTModernBertModel", LoadModernBert, kModernBertRules},
    {"CohereForCausalLM",
     LoadCohere,
     {.renames = R"({"layer_norm_eps": "rms_norm_eps",
                     "model_max_length": "max_position_embeddings"})",
      .defaults = R"({"rms_norm_eps": 1e-5, "logit_scale": 0.0625, "rope_theta": 500000,
                      "max_position_embeddings": 8192, "tie_word_embeddings": true})"}},
    {"Cohere2ForCausalLM",
     LoadCohere2,
     {.has_window = true,
      .window_is_before_token = true,  // as in vLLM
      .renames = R"({"layer_norm_eps": "rms_norm_eps"})",
      .required = R"({"use_qk_norm": false, "use_parallel_block": true})",
      .defaults = R"({"rms_norm_eps": 1e-5, "logit_scale": 0.0625, "sliding_window": 4096,
                      "sliding_window_pattern": 4, "tie_word_embeddings": true})"}},
    {"CwmForCausalLM",
     LoadLlama,
     {.has_window = true, .defaults = R"({"rms_norm_eps": 1e-5, "head_dim": 128,
                      "sliding_window": 8192, "rope_theta": 1000000,
                      "rope_scaling": {"rope_type": "llama3", "factor": 16,
                                       "low_freq_factor": 1, "high_freq_factor": 4,
                                       "original_max_position_embeddings": 8192}})"}},
    {"DeepseekV2ForCausalLM",
     LoadDeepseekV2,
     {.has_latent = true,
      .mixtures = MixtureLayers::kFromLayer,
      .required = R"({"scoring_func": "softmax"})",
      .defaults = R"({"topk_method": "greedy", "n_shared_experts": 2, "q_lora_rank": 1536,
                      "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                      "v_head_dim": 128})"}},
    {"DeepseekV3ForCausalLM",
     LoadDeepseekV3,
     {.has_latent = true,
      .mixtures = MixtureLayers::kFromLayer,
      .required = kDeepseekV3Required,
      .defaults = R"({"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                      "qk_rope_head_dim": 64, "v_head_dim": 128, "n_group": 8, "topk_group": 4,
                      "norm_topk_prob": true, "routed_scaling_factor": 2.5,
                      "n_shared_experts": 1, "first_k_dense_replace": 3})"}},
    {"DeepseekV32ForCausalLM",
     LoadDeepseekV3,
     {.has_latent = true,
      .has_index = true,
      .mixtures = MixtureLayers::kFromLayer,
      .required = kDeepseekV3Required,
      .defaults = R"({"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                      "qk_rope_head_dim": 64, "v_head_dim": 128, "n_group": 8, "topk_group": 4,
                      "norm_topk_prob": true, "routed_scaling_factor": 2.5,
                      "n_shared_experts": 1, "first_k_dense_replace": 3, "index_head_dim": 128,
                      "index_n_heads": 64, "index_topk": 2048})"}},
    {"Ernie4_5ForCausalLM",
     LoadErnie45,
     {.required = R"({"use_bias": false})",
      .defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 500000, "head_dim": 128,
                      "tie_word_embeddings": true})"}},
    {"Ernie4_5_MoeForCausalLM",
     LoadErnie45Moe,
     {.mixtures = MixtureLayers::kFromLayer,
      .renames = R"({"moe_num_experts": "n_routed_experts", "moe_k": "num_experts_per_tok",
                     "moe_layer_start_index": "first_k_dense_replace",
                     "moe_num_shared_experts": "n_shared_experts"})",
      .required = R"({"moe_layer_interval": 1, "use_bias": false})",
      .defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 500000, "n_routed_experts": 64,
                      "num_experts_per_tok": 6, "first_k_dense_replace": 1,
                      "n_shared_experts": 2, "moe_intermediate_size": 1536,
                      "tie_word_embeddings": true})"}},
    {"Exaone4ForCausalLM",
     LoadExaone4,
     {.has_window = true, .defaults = R"({"rms_norm_eps": 1e-5, "sliding_window": 4096,
                      "sliding_window_pattern": 4})"}},
    {"FalconForCausalLM",
     LoadFalcon,
     {.has_gated_mlp = false,
      .renames = R"({"num_kv_heads": "num_key_value_heads", "ffn_hidden_size": "intermediate_size",
                     "bias": "attention_bias", "activation": "hidden_act"})",
      .required = R"({"alibi": false, "parallel_attn": true})",
      .defaults = R"({"layer_norm_epsilon": 1e-5, "multi_query": true, "hidden_act": "gelu",
                      "tie_word_embeddings": true})"}},
    {"FalconH1ForCausalLM",
     LoadFalconH1,
     {.recurrent = RecurrentKind::kScan,
      .states = StatePlace::kBesideAttention,
      .spell = SpellFalconH1,
      .required = R"({"mamba_proj_bias": false, "projectors_bias": false, "attention_bias": false,
                      "mlp_bias": false, "mamba_use_mlp": true, "attn_layer_indices": null})",
      .defaults = R"({"rms_norm_eps": 1e-5, "mamba_n_heads": 128,
                      "mamba_d_head": "auto", "mamba_d_state": 256, "mamba_d_ssm": 1024,
                      "mamba_rms_norm": false, "mamba_norm_before_gate": true})"}},
    {"GemmaForCausalLM", LoadGemma, {.overrides = kGemmaOverrides}},
    {"Gemma2ForCausalLM",
     LoadGemma2,
     {.has_window = true,
      .defaults = R"({"sliding_window": 4096, "sliding_window_pattern": 2,
                      "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50,
                      "final_logit_softcapping": 30})",
      .overrides = kGemmaOverrides}},
    {"Gemma3ForCausalLM",
     LoadGemma3,
     {.has_window = true,
      .local_rope = LocalRope::kOwn,
      // Published configs of the text model beside a vision tower leave out what has its default.
      .defaults = R"({"sliding_window": 4096, "sliding_window_pattern": 6,
                      "query_pre_attn_scalar": 256, "rope_theta": 1000000,
                      "rope_local_base_freq": 10000, "vocab_size": 262208,
                      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
                      "max_position_embeddings": 131072})",
      .overrides = kGemmaOverrides}},
    {"Gemma4ForCausalLM",
     LoadGemma4,
     {.has_window = true,
      .local_rope = LocalRope::kOwn,
      .is_uneven = true,
      .spell = SpellGemma4,
      .mixtures = MixtureLayers::kByKeys,
      .renames = R"({"top_k_experts": "num_experts_per_tok"})",
      .defaults = R"({"sliding_window": 512, "sliding_window_pattern": 6, "vocab_size": 262144,
                      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
                      "global_head_dim": 512, "hidden_size_per_layer_input": 256,
                      "vocab_size_per_layer_input": 262144, "max_position_embeddings": 131072,
                      "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true,
                      "rope_local_base_freq": 10000,
                      "rope_parameters": {
                        "full_attention": {"rope_type": "proportional", "rope_theta": 1000000,
                                           "partial_rotary_factor": 0.25},
                        "sliding_attention": {"rope_theta": 10000}}})"}},
    {"GlmForCausalLM",
     LoadGlm,
     {.defaults = R"({"rms_norm_eps": 1.5625e-7, "partial_rotary_factor": 0.5,
                      "attention_bias": true, "head_dim": 128})"}},
    {"Glm4ForCausalLM",
     LoadGlm4,
     {.defaults =
          R"({"rms_norm_eps": 1.5625e-7, "partial_rotary_factor": 0.5, "attention_bias": true})"}},
    {"Glm4MoeForCausalLM",
     LoadGlm4Moe,
     {.mixtures = MixtureLayers::kFromLayer,
      .defaults = R"({"rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "norm_topk_prob": true,
                      "n_shared_experts": 1, "first_k_dense_replace": 1})"}},
    {"Glm4MoeLiteForCausalLM",
     LoadDeepseekV3,
     {.has_latent = true,
      .mixtures = MixtureLayers::kFromLayer,
      .required = kDeepseekV3Required,
      .defaults = R"({"q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
                      "qk_rope_head_dim": 64, "v_head_dim": 256, "norm_topk_prob": true,
                      "rms_norm_eps": 1e-5, "routed_scaling_factor": 1.8, "n_shared_experts": 1,
                      "first_k_dense_replace": 1})"}},
    {"GlmMoeDsaForCausalLM",
     LoadDeepseekV3,
     {.has_latent = true,
      .has_index = true,
      .mixtures = MixtureLayers::kFromLayer,
      .required = kDeepseekV3Required,
      .defaults = R"({"rms_norm_eps": 1e-5, "q_lora_rank": 2048, "kv_lora_rank": 512,
                      "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
                      "norm_topk_prob": true, "routed_scaling_factor": 2.5,
                      "n_shared_experts": 1, "first_k_dense_replace": 3, "index_head_dim": 128,
                      "index_n_heads": 32, "index_topk": 2048, "indexer_rope_interleave": true})"}},
    {"GPT2LMHeadModel",
     LoadGpt2,
     {.has_rope = false,
      .has_gated_mlp = false,
      .defaults = R"({"layer_norm_epsilon": 1e-5, "n_positions": 1024,
                      "activation_function": "gelu_new"})",
      .overrides = R"({"tie_word_embeddings": true})"}},
    {"GPTNeoXForCausalLM",
     LoadGptNeoX,
     {.has_gated_mlp = false,
      .renames = R"({"layer_norm_eps": "rms_norm_eps", "rotary_emb_base": "rope_theta",
                     "rotary_pct": "partial_rotary_factor"})",
      .defaults = R"({"rms_norm_eps": 1e-5, "partial_rotary_factor": 0.25, "hidden_act": "gelu",
                      "attention_bias": true, "use_parallel_residual": true})"}},
    {"GptOssForCausalLM",
     LoadGptOss,
     {.has_window = true,
      .mixtures = MixtureLayers::kAll,
      .defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 150000, "sliding_window": 128,
                      "sliding_window_pattern": 2, "attention_bias": true, "swiglu_limit": 7,
                      "num_experts_per_tok": 4,
                      "rope_scaling": {"rope_type": "yarn", "factor": 32, "truncate": false,
                                       "original_max_position_embeddings": 4096}})"}},
    {"GraniteForCausalLM", LoadGranite, {.defaults = R"({"attention_multiplier": 1})"}},
    {"GraniteMoeForCausalLM", LoadGraniteMoeHybrid, kGraniteMoeRules},
    {"GraniteMoeHybridForCausalLM",
     LoadGraniteMoeHybrid,
     {.recurrent = RecurrentKind::kScan,
      .spell = SpellGraniteHybrid,
      .mixtures = MixtureLayers::kByKeys,
      .required = R"({"mamba_proj_bias": false, "normalization_function": "rmsnorm"})",
      .defaults = R"({"attention_multiplier": 1, "shared_intermediate_size": 1024,
                      "mamba_n_heads": 128, "mamba_d_head": "auto", "mamba_d_state": 256,
                      "num_experts_per_tok": 2})"}},
    {"GraniteMoeSharedForCausalLM", LoadGraniteMoeHybrid, kGraniteMoeRules},
    {"HF_ColBERT", LoadBert, kBertRules},
    {"HunYuanDenseV1ForCausalLM",
     LoadHunyuan,
     {.defaults = R"({"rms_norm_eps": 1e-5, "use_qk_norm": true})"}},
    {"HunYuanMoEV1ForCausalLM",
     LoadHunyuanMoe,
     {.spell = SpellHunyuanMoe,
      .mixtures = MixtureLayers::kByKeys,
      .required = R"({"use_cla": false, "moe_layer_num_skipped": 0, "norm_topk_prob": true})",
      .defaults = R"({"rms_norm_eps": 1e-5, "use_qk_norm": true, "num_experts": 1,
                      "moe_topk": 1})"}},
    {"JambaForCausalLM",
     LoadJamba,
     {.has_rope = false,
      .recurrent = RecurrentKind::kSelective,
      .spell = SpellJamba,
      .mixtures = MixtureLayers::kByKeys,
      .required = R"({"mamba_proj_bias": false})",
      .defaults = R"({"num_experts": 16, "num_experts_per_tok": 2, "mamba_dt_rank": "auto"})"}},
    {"KimiLinearForCausalLM",
     LoadKimiLinear,
     {.has_rope = false,
      .has_latent = true,
      .recurrent = RecurrentKind::kChannelDelta,
      .spell = SpellKimi,
      .mixtures = MixtureLayers::kFromLayer,
      .required = R"({"moe_router_activation_func": "sigmoid", "mla_use_nope": true})",
      .defaults = R"({"moe_renormalize": true, "rms_norm_eps": 1e-5,
                      "routed_scaling_factor": 2.446, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                      "qk_rope_head_dim": 64, "v_head_dim": 128})"}},
    {"Lfm2ForCausalLM",
     LoadLfm2,
     {.recurrent = RecurrentKind::kShortConv,
      .spell = SpellLfm2,
      .defaults = R"({"rms_norm_eps": 1e-5,
                      "rope_theta": 1000000, "max_position_embeddings": 128000})"}},
    {"Lfm2MoeForCausalLM",
     LoadLfm2,
     {.recurrent = RecurrentKind::kShortConv,
      .spell = SpellLfm2Moe,
      .mixtures = MixtureLayers::kFromLayer,
      .required = R"({"use_expert_bias": true})",
      .defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 1000000,
                      "max_position_embeddings": 128000, "num_dense_layers": 2,
                      "num_experts": 32, "num_experts_per_tok": 4, "norm_topk_prob": true,
                      "moe_intermediate_size": 1792, "tie_word_embeddings": true})"}},
    {"Llama4ForCausalLM",
     LoadLlama4,
     {.has_chunks = true,
      .mixtures = MixtureLayers::kByKeys,
      .renames = R"({"intermediate_size": "moe_intermediate_size",
                     "intermediate_size_mlp": "intermediate_size",
                     "interleave_moe_layer_step": "decoder_sparse_step"})",
      .defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 500000, "no_rope_layer_interval": 4,
                      "attention_chunk_size": 8192, "attn_scale": 0.1, "floor_scale": 8192,
                      "use_qk_norm": true,
                      "intermediate_size": 16384, "num_local_experts": 16,
                      "num_experts_per_tok": 1})"}},
    {"LlamaForCausalLM", LoadLlama},
    {"Mamba2ForCausalLM",
     LoadMamba2,
     {.has_rope = false,
      .recurrent = RecurrentKind::kScan,
      .required = R"({"use_bias": false, "hidden_act": "silu"})",
      .defaults = R"({"layer_norm_epsilon": 1e-5, "num_heads": 128, "head_dim": 64,
                      "state_size": 128, "n_groups": 8})",
      // There is no attention and no MLP; these can be split as the rest.
      .overrides = R"({"num_attention_heads": 8, "num_key_value_heads": 8,
                       "intermediate_size": 8, "layer_types": null})"}},
    {"MiniMaxM2ForCausalLM",
     LoadMiniMaxM2,
     {.mixtures = MixtureLayers::kAll,
      .required = R"({"scoring_func": "sigmoid", "qk_norm_type": "per_layer",
                      "use_qk_norm": true, "use_routing_bias": true,
                      "shared_intermediate_size": 0})",
      .defaults = R"({"rope_theta": 5000000})"}},
    {"MiMoForCausalLM",
     LoadQwen2,
     {.has_window = true, .defaults = R"({"use_sliding_window": false, "sliding_window": 4096,
                      "max_window_layers": 28})"}},
    {"Ministral3ForCausalLM", LoadMinistral3, {.defaults = R"({"rms_norm_eps": 1e-5})"}},
    {"MistralForCausalLM",
     LoadLlama,
     {.has_window = true, .defaults = R"({"sliding_window": 4096})"}},
    {"ModernBertForSequenceClassification", LoadModernBert, kModernBertRules},
    {"ModernBertForTokenClassification", LoadModernBert, kModernBertRules},
    {"ModernBertModel", LoadModernBert, kModernBertRules},
    {"MixtralForCausalLM",
     LoadMixtral,
     {.has_window = true,
      .mixtures = MixtureLayers::kAll,
      .defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 1000000, "num_experts": 8,
                      "num_experts_per_tok": 2})"}},
    {"NemotronHForCausalLM",
     LoadNemotronH,
     {.has_rope = false,
      .has_gated_mlp = false,
      .recurrent = RecurrentKind::kScan,
      .states = StatePlace::kAlone,
      .spell = SpellNemotronH,
      .mixtures = MixtureLayers::kByTypes,
      .required = R"({"use_bias": false, "mlp_bias": false, "mamba_proj_bias": false,
                      "mamba_hidden_act": "silu"})",
      .defaults = R"({"layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2",
                      "mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128,
                      "n_groups": 8, "norm_topk_prob": true})"}},
    {"Olmo2ForCausalLM", LoadOlmo2, {.defaults = R"({"rms_norm_eps": 1e-5})"}},
    {"Olmo3ForCausalLM",
     LoadOlmo3,
     {.has_window = true,
      .local_rope = LocalRope::kUnscaled,
      .defaults = R"({"rms_norm_eps": 1e-5, "sliding_window": 4096,
                      "sliding_window_pattern": 4, "rope_theta": 500000})"}},
    {"OlmoeForCausalLM",
     LoadOlmoe,
     {.mixtures = MixtureLayers::kAll,
      .required = R"({"clip_qkv": null})",
      .defaults = R"({"rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8})"}},
    {"OPTForCausalLM",
     LoadOpt,
     {.has_rope = false,
      .has_gated_mlp = false,
      .renames = R"({"ffn_dim": "intermediate_size"})",
      .required = R"({"do_layer_norm_before": true, "_remove_final_layer_norm": false,
                      "enable_bias": true, "layer_norm_elementwise_affine": true})",
      .defaults = R"({"rms_norm_eps": 1e-5, "activation_function": "relu",
                      "tie_word_embeddings": true})"}},
    {"PhiForCausalLM",
     LoadPhi,
     {.has_gated_mlp = false,
      .renames = R"({"layer_norm_eps": "rms_norm_eps"})",
      .required = R"({"qk_layernorm": false})",
      .defaults = R"({"rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
                      "hidden_act": "gelu_new"})"}},
    {"Phi3ForCausalLM", LoadPhi3, {.has_window = true, .defaults = R"({"rms_norm_eps": 1e-5})"}},
    {"PhiMoEForCausalLM", LoadPhiMoe, kPhiMoeRules},
    {"PhimoeForCausalLM", LoadPhiMoe, kPhiMoeRules},  // as transformers writes it
    {"Qwen2ForCausalLM",
     LoadQwen2,
     {.has_window = true, .defaults = R"({"use_sliding_window": false, "sliding_window": 4096,
                      "max_window_layers": 28})"}},
    {"Qwen2MoeForCausalLM",
     LoadQwen2Moe,
     {.has_window = true,
      .mixtures = MixtureLayers::kByKeys,
      .renames = R"({"qkv_bias": "attention_bias"})",
      .defaults = R"({"use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28,
                      "attention_bias": true, "num_experts": 60, "num_experts_per_tok": 4,
                      "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632})"}},
    {"Qwen3ForCausalLM",
     LoadQwen3,
     {.has_window = true, .defaults = R"({"use_sliding_window": false, "sliding_window": 4096,
                      "max_window_layers": 28})"}},
    {"Qwen3MoeForCausalLM", LoadQwen3Moe, kQwen3MoeRules},
    {"Qwen3NextForCausalLM",
     LoadQwen3Next,
     {.recurrent = RecurrentKind::kDelta,
      .mixtures = MixtureLayers::kByKeys,
      .defaults = R"({"attn_output_gate": true, "full_attention_interval": 4,
                      "partial_rotary_factor": 0.25, "head_dim": 256,
                      "num_experts": 512, "num_experts_per_tok": 10,
                      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
                      "intermediate_size": 5632, "norm_topk_prob": true})"}},
    {"Qwen3_5ForCausalLM",
     LoadQwen3Next,
     {.recurrent = RecurrentKind::kDelta, .defaults = kQwen35Defaults}},
    {"Qwen3_5ForConditionalGeneration",
     LoadQwen3Next,
     {.recurrent = RecurrentKind::kDelta, .defaults = kQwen35Defaults}},
    {"Qwen3_5MoeForCausalLM",
     LoadQwen3Next,
     {.recurrent = RecurrentKind::kDelta,
      .mixtures = MixtureLayers::kByKeys,
      .defaults = kQwen35Defaults,
      .overrides = kQwen35Overrides}},
    {"Qwen3_5MoeForConditionalGeneration",
     LoadQwen3Next,
     {.recurrent = RecurrentKind::kDelta,
      .mixtures = MixtureLayers::kByKeys,
      .defaults = kQwen35Defaults,
      .overrides = kQwen35Overrides}},
    {"Qwen3VLMoeForConditionalGeneration", LoadQwen3VlMoe, kQwen3VlMoeRules},
    {"RobertaForSequenceClassification", LoadBert, kRobertaRules},
    {"RobertaForTokenClassification", LoadBert, kRobertaRules},
    {"RobertaModel", LoadBert, kRobertaRules},
    {"SeedOssForCausalLM", LoadSeedOss, {.defaults = R"({"attention_bias": true})"}},
    {"SmolLM3ForCausalLM",
     LoadSmolLm3,
     {.has_window = true, .defaults = R"({"use_sliding_window": false, "no_rope_layer_interval": 4,
                      "rope_theta": 2000000, "tie_word_embeddings": true})"}},
    {"StableLmForCausalLM",
     LoadStableLm,
     {.renames = R"({"layer_norm_eps": "rms_norm_eps", "use_qkv_bias": "attention_bias"})",
      .required = R"({"qk_layernorm": false, "use_parallel_residual": false})",
      .defaults = R"({"rms_norm_eps": 1e-5, "partial_rotary_factor": 0.25})"}},
    {"Starcoder2ForCausalLM",
     LoadStarcoder2,
     {.has_window = true,
      .has_gated_mlp = false,
      .renames = R"({"norm_epsilon": "rms_norm_eps", "use_bias": "attention_bias"})",
      .defaults = R"({"rms_norm_eps": 1e-5, "attention_bias": true,
                      "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": true})"}},
    {"XLMRobertaForSequenceClassification", LoadBert, kRobertaRules},
    {"XLMRobertaForTokenClassification", LoadBert, kRobertaRules},
    {"XLMRobertaModel", LoadBert, kRobertaRules},
};

// Models without a head to generate with, or with a classifier in its place: "Qwen3Model",
// "Qwen3ForSequenceClassification".
std::string WithGeneratingHead(std::string_view architecture) {
  for (const std::string_view end :
       {"ForSequenceClassification", "ForTokenClassification", "TextModel", "Model"}) {
    if (!architecture.ends_with(end)) continue;
    return std::string(architecture.substr(0, architecture.size() - end.size())) + "ForCausalLM";
  }
  return std::string(architecture);
}

StatusOr<const ArchitectureRow*> FindRow(std::string_view architecture) {
  const std::string twin = WithGeneratingHead(architecture);
  for (const ArchitectureRow& row : kArchitectures) {
    if (row.name == architecture || row.name == twin) return &row;
  }
  return InvalidArgumentError("architecture " + std::string(architecture) +
                              " is unknown, must be one of " + KnownArchitectures());
}

StatusOr<ConfigRules> RulesOf(std::string_view architecture) {
  ASSIGN_OR_RETURN(const ArchitectureRow* row, FindRow(architecture));
  return row->rules;
}

}  // namespace

std::string KnownArchitectures() {
  std::string names;
  for (const ArchitectureRow& row : kArchitectures) {
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names;
}

StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir, std::string_view hf_overrides) {
  return ReadModelConfig(model_dir, RulesOf, hf_overrides);
}

StatusOr<ModelConfig> ParseModelConfig(std::string_view config,
                                       std::string_view generation_config) {
  return ParseModelConfig(config, generation_config, RulesOf);
}

StatusOr<std::unique_ptr<Stage>> LoadLayerAlone(const LoadContext& context) {
  ASSIGN_OR_RETURN(const ArchitectureRow* row, FindRow(context.config.architecture));
  CHECK(!context.only_layer.empty() && context.config.num_layers == 1);
  return row->load(context);
}

StatusOr<std::unique_ptr<Model>> LoadTables(const LoadContext& context, bool embedding, bool head) {
  ASSIGN_OR_RETURN(const ArchitectureRow* row, FindRow(context.config.architecture));
  CHECK(embedding || head);
  ModelConfig config = context.config;
  config.num_layers = 0;
  const ModelLimits limits = {.max_tokens = 1, .max_logits_rows = 1, .max_positions = 1};
  LoadContext tables = {config, limits, context.weights, context.backend, context.formats};
  constexpr RankShare kFirst = {.rank = 0, .size = 3}, kLast = {.rank = 2, .size = 3};
  if (!embedding || !head) tables.stage = embedding ? kFirst : kLast;
  std::vector<std::unique_ptr<Stage>> stages(1);
  ASSIGN_OR_RETURN(stages[0], row->load(tables));
  return std::make_unique<Model>(std::move(stages));
}

StatusOr<std::unique_ptr<Model>> LoadModel(const LoadContext& context, int num_stages) {
  ASSIGN_OR_RETURN(const ArchitectureRow* row, FindRow(context.config.architecture));
  CHECK(num_stages >= 1 && num_stages <= context.config.num_layers) << num_stages;
  CHECK(num_stages == 1 || context.stage.size == 1) << "stages of a stage";
  std::vector<std::unique_ptr<Stage>> stages;
  for (int rank = 0; rank < num_stages; ++rank) {
    LoadContext part = context;
    if (num_stages > 1) part.stage = {.rank = rank, .size = num_stages};
    ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage, row->load(part));
    stages.push_back(std::move(stage));
  }
  return std::make_unique<Model>(std::move(stages));
}

}  // namespace tandem
