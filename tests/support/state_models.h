#pragma once

// config.json of small models whose layers have states of scans, for made up weights
// (MakeDummyWeights): a state in the place of attention, in layers that are one part, beside
// attention, and Mamba's.

#include <string>
#include <string_view>

namespace tandem {

inline constexpr std::string_view kStateModels[] = {
    R"("architectures": ["GraniteMoeHybridForCausalLM"], "num_hidden_layers": 2,
       "layer_types": ["mamba", "attention"], "num_local_experts": 4)",
    R"("architectures": ["NemotronHForCausalLM"], "num_hidden_layers": 4,
       "hybrid_override_pattern": "M*-E", "n_routed_experts": 4, "num_experts_per_tok": 2,
       "moe_intermediate_size": 48, "moe_shared_expert_intermediate_size": 80,
       "n_shared_experts": 1, "n_groups": 2)",
    R"("architectures": ["NemotronHForCausalLM"], "num_hidden_layers": 3,
       "hybrid_override_pattern": "ME*", "n_routed_experts": 4, "num_experts_per_tok": 2,
       "moe_intermediate_size": 48, "moe_shared_expert_intermediate_size": 80,
       "n_shared_experts": 1, "moe_latent_size": 32, "n_groups": 2)",
    R"("architectures": ["FalconH1ForCausalLM"], "num_hidden_layers": 2, "mamba_rms_norm": true,
       "mlp_multipliers": [0.9, 0.5], "ssm_multipliers": [0.5, 2, 0.4, 3, 0.7],
       "ssm_out_multiplier": 0.7, "attention_out_multiplier": 0.8)",
    R"("architectures": ["JambaForCausalLM"], "num_hidden_layers": 3, "attn_layer_period": 3,
       "attn_layer_offset": 1, "num_experts": 4)"};

inline std::string ConfigOfStateModel(std::string_view model) {
  return "{" + std::string(model) + R"(,
      "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 1024, "mamba_n_heads": 4,
      "mamba_d_head": 32, "mamba_d_ssm": 128, "mamba_d_state": 16})";
}

}  // namespace tandem
