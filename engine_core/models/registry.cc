#include "engine_core/models/registry.h"

#include <utility>
#include <vector>

#include "engine_core/weights/hf_overrides.h"

namespace tandem {

// Each in the file of its name.
using StageLoader = StatusOr<std::unique_ptr<Stage>>(const LoadContext&);
StageLoader LoadDeepseekV2, LoadDeepseekV3, LoadGemma, LoadGemma2, LoadGemma3, LoadGpt2,
    LoadKimiLinear, LoadLfm2, LoadLlama, LoadMamba2, LoadMixtral, LoadOlmo2, LoadPhi3, LoadQwen2,
    LoadQwen3, LoadQwen3Moe, LoadQwen3Next;

namespace {

struct ArchitectureRow {
  std::string_view name;  // config.json's architectures[0]
  StageLoader* load;
  ConfigRules rules = {};
};

constexpr std::string_view kGemmaOverrides =
    R"({"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true})";

// Of Qwen3.5, whose experts' weights always sum to 1 and which has no other MLP beside them.
constexpr std::string_view kQwen35Defaults =
    R"({"attn_output_gate": true, "full_attention_interval": 4, "partial_rotary_factor": 0.25,
        "head_dim": 256, "rope_theta": 10000000, "num_experts": 256, "num_experts_per_tok": 8,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "intermediate_size": 512})";
constexpr std::string_view kQwen35Overrides = R"({"norm_topk_prob": true})";

// By name. What a row does not say is as in Llama.
constexpr ArchitectureRow kArchitectures[] = {
    {"DeepseekV2ForCausalLM",
     LoadDeepseekV2,
     {.has_latent = true,
      .mixtures = MixtureLayers::kFromLayer,
      .defaults = R"({"topk_method": "greedy", "q_lora_rank": 1536, "kv_lora_rank": 512,
                      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128})"}},
    {"DeepseekV3ForCausalLM",
     LoadDeepseekV3,
     {.has_latent = true,
      .mixtures = MixtureLayers::kFromLayer,
      .defaults = R"({"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                      "qk_rope_head_dim": 64, "v_head_dim": 128, "n_group": 8, "topk_group": 4,
                      "norm_topk_prob": true, "routed_scaling_factor": 2.5,
                      "n_shared_experts": 1, "first_k_dense_replace": 3})"}},
    {"GemmaForCausalLM", LoadGemma, {.overrides = kGemmaOverrides}},
    {"Gemma2ForCausalLM",
     LoadGemma2,
     {.has_window = true,
      .defaults = R"({"sliding_window": 4096, "sliding_window_pattern": 2,
                      "query_pre_attn_scalar": 256})",
      .overrides = kGemmaOverrides}},
    {"Gemma3ForCausalLM",
     LoadGemma3,
     {.has_window = true,
      .defaults = R"({"sliding_window": 4096, "sliding_window_pattern": 6,
                      "query_pre_attn_scalar": 256, "rope_theta": 1000000})",
      .overrides = kGemmaOverrides}},
    {"Glm4MoeLiteForCausalLM",
     LoadDeepseekV3,
     {.has_latent = true,
      .mixtures = MixtureLayers::kFromLayer,
      .defaults = R"({"q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
                      "qk_rope_head_dim": 64, "v_head_dim": 256, "norm_topk_prob": true,
                      "n_shared_experts": 1, "first_k_dense_replace": 1})"}},
    {"GPT2LMHeadModel",
     LoadGpt2,
     {.has_rope = false,
      .has_gated_mlp = false,
      .defaults = R"({"layer_norm_epsilon": 1e-5, "n_positions": 1024,
                      "activation_function": "gelu_new"})",
      .overrides = R"({"tie_word_embeddings": true})"}},
    {"KimiLinearForCausalLM",
     LoadKimiLinear,
     {.has_rope = false,
      .has_latent = true,
      .recurrent = RecurrentKind::kChannelDelta,
      .mixtures = MixtureLayers::kFromLayer,
      .defaults = R"({"moe_renormalize": true, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                      "qk_rope_head_dim": 64, "v_head_dim": 128})"}},
    {"Lfm2ForCausalLM",
     LoadLfm2,
     {.recurrent = RecurrentKind::kShortConv, .defaults = R"({"rms_norm_eps": 1e-5,
                      "rope_theta": 1000000, "max_position_embeddings": 128000})"}},
    {"LlamaForCausalLM", LoadLlama},
    {"Mamba2ForCausalLM",
     LoadMamba2,
     {.has_rope = false,
      .recurrent = RecurrentKind::kScan,
      .defaults = R"({"layer_norm_epsilon": 1e-5, "num_heads": 128, "head_dim": 64,
                      "state_size": 128, "n_groups": 8})",
      // There is no attention and no MLP.
      .overrides = R"({"num_attention_heads": 1, "num_key_value_heads": 1,
                       "intermediate_size": 2})"}},
    {"MistralForCausalLM",
     LoadLlama,
     {.has_window = true, .defaults = R"({"sliding_window": 4096})"}},
    {"MixtralForCausalLM",
     LoadMixtral,
     {.has_window = true,
      .mixtures = MixtureLayers::kAll,
      .defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 1000000, "num_experts": 8,
                      "num_experts_per_tok": 2})"}},
    {"Olmo2ForCausalLM", LoadOlmo2, {.defaults = R"({"rms_norm_eps": 1e-5})"}},
    {"Phi3ForCausalLM", LoadPhi3, {.has_window = true, .defaults = R"({"rms_norm_eps": 1e-5})"}},
    {"Qwen2ForCausalLM",
     LoadQwen2,
     {.has_window = true, .defaults = R"({"use_sliding_window": false, "sliding_window": 4096,
                      "max_window_layers": 28})"}},
    {"Qwen3ForCausalLM",
     LoadQwen3,
     {.has_window = true, .defaults = R"({"use_sliding_window": false, "sliding_window": 4096,
                      "max_window_layers": 28})"}},
    {"Qwen3MoeForCausalLM",
     LoadQwen3Moe,
     {.has_window = true,
      .mixtures = MixtureLayers::kByKeys,
      .defaults = R"({"use_sliding_window": false, "sliding_window": 4096, "num_experts": 128,
                      "num_experts_per_tok": 8, "moe_intermediate_size": 768})",
      // A window is in all layers or in none.
      .overrides = R"({"max_window_layers": null})"}},
    {"Qwen3NextForCausalLM",
     LoadQwen3Next,
     {.recurrent = RecurrentKind::kDelta,
      .mixtures = MixtureLayers::kByKeys,
      .defaults = R"({"attn_output_gate": true, "full_attention_interval": 4,
                      "partial_rotary_factor": 0.25, "head_dim": 256, "rope_theta": 10000000,
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
};

StatusOr<const ArchitectureRow*> FindRow(std::string_view architecture) {
  for (const ArchitectureRow& row : kArchitectures) {
    if (row.name == architecture) return &row;
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
