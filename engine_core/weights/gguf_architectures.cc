#include "engine_core/weights/gguf_architectures.h"

#include <utility>

#include "common/strings.h"
#include "gguf/known_names.h"

namespace tandem {
namespace {

constexpr GgufModuleName kTopNames[] = {
    {"lm_head", "output"},
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"transformer.ln_f", "output_norm"},
    {"transformer.wpe", "position_embd"},
    {"transformer.wte", "token_embd"},
};

// Of most architectures. Experts have their number after "experts".
constexpr GgufModuleName kLayerNames[] = {
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.experts.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.up_proj", "ffn_up_exps"},
    {"mlp.experts.down_proj", "ffn_down_exps"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.experts.w1", "ffn_gate_exps"},
    {"block_sparse_moe.experts.w3", "ffn_up_exps"},
    {"block_sparse_moe.experts.w2", "ffn_down_exps"},
};

// Norms after attention and MLP.
constexpr GgufModuleName kNormsAfter[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
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

constexpr GgufModuleName kSeedOssNames[] = {
    {"post_attention_layernorm", "post_attention_norm"},
};

// By name.
constexpr GgufArchitecture kArchitectures[] = {
    {.name = "exaone4", .hf_name = "Exaone4ForCausalLM", .layer_names = kNormsAfter},
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
    {.name = "gpt-oss",
     .hf_name = "GptOssForCausalLM",
     .hf_mixture = "GptOssForCausalLM",
     .layer_names = kGptOssNames,
     .config = R"({"rope_scaling": {"truncate": false}})"},
    {.name = "gpt2", .hf_name = "GPT2LMHeadModel", .layer_names = kGpt2Names},
    {.name = "granite", .hf_name = "GraniteForCausalLM", .has_paired_rows = true},
    {.name = "llama",
     .hf_name = "LlamaForCausalLM",
     .hf_mixture = "MixtralForCausalLM",
     .has_paired_rows = true},
    {.name = "olmo2", .hf_name = "Olmo2ForCausalLM", .layer_names = kNormsAfter},
    {.name = "olmoe", .hf_name = "OlmoeForCausalLM", .hf_mixture = "OlmoeForCausalLM"},
    {.name = "phi3", .hf_name = "Phi3ForCausalLM"},
    {.name = "qwen2", .hf_name = "Qwen2ForCausalLM", .has_qkv_bias = true},
    {.name = "qwen3", .hf_name = "Qwen3ForCausalLM"},
    {.name = "qwen3moe",
     .hf_name = "Qwen3MoeForCausalLM",
     .hf_mixture = "Qwen3MoeForCausalLM",
     .config = R"({"norm_topk_prob": true})"},
    {.name = "seed_oss", .hf_name = "SeedOssForCausalLM", .layer_names = kSeedOssNames},
    {.name = "smollm3", .hf_name = "SmolLM3ForCausalLM", .has_paired_rows = true},
};

std::string_view FindName(std::span<const GgufModuleName> names, std::string_view hf) {
  for (const GgufModuleName& name : names) {
    if (name.hf == hf) return name.gguf;
  }
  return {};
}

// Takes the number out of "mlp.experts.3.up_proj".
std::optional<int64_t> TakeExpert(std::string* module) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t place = module->find(kExperts);
  if (place == std::string::npos) return std::nullopt;
  const size_t begin = place + kExperts.size(), end = module->find('.', begin);
  if (end == std::string::npos) return std::nullopt;
  const auto expert = ParseNumber<int64_t>(std::string_view(*module).substr(begin, end - begin));
  if (expert) module->erase(begin, end + 1 - begin);
  return expert;
}

struct LayerModule {
  int64_t layer;
  std::string module;
};

// "model.layers.3.mlp.up_proj" is {3, "mlp.up_proj"}.
std::optional<LayerModule> ParseLayerModule(std::string_view name) {
  for (const std::string_view prefix : {"model.layers.", "transformer.h."}) {
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
  const std::string suffix(hf_name.substr(dot));
  GgufTensorPlace place;
  std::string_view module = FindName(kTopNames, hf_name.substr(0, dot));
  if (!module.empty()) {
    place.name = std::string(module) + suffix;
  } else {
    auto parsed = ParseLayerModule(hf_name.substr(0, dot));
    if (!parsed) return std::nullopt;
    const std::string layer = "blk." + std::to_string(parsed->layer) + ".";
    const std::string_view whole = FindName(architecture.layer_names, parsed->module + suffix);
    if (!whole.empty()) {
      place.name = layer + std::string(whole);
      return place;
    }
    place.expert = TakeExpert(&parsed->module);
    module = FindName(architecture.layer_names, parsed->module);
    if (module.empty()) module = FindName(kLayerNames, parsed->module);
    if (module.empty()) return std::nullopt;
    place.name = layer + std::string(module) + suffix;
  }
  place.is_paired = architecture.has_paired_rows && (module == "attn_q" || module == "attn_k");
  place.is_norm = module.ends_with("_norm");
  return place;
}

}  // namespace tandem
