#pragma once

// The model shapes that speed is measured on, as config.json texts; weights are random.

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace tandem {

struct ModelShape {
  std::string_view name;
  std::string_view config;
};

inline constexpr ModelShape kModelShapes[] = {
    {"160m", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
      "num_key_value_heads": 4, "intermediate_size": 2048, "vocab_size": 32000,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu",
      "tie_word_embeddings": false, "torch_dtype": "bfloat16"})"},
    {"0.5b", R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
      "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
      "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "hidden_act": "silu",
      "tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    {"1.1b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32,
      "num_key_value_heads": 4, "intermediate_size": 5632, "vocab_size": 32000,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu",
      "tie_word_embeddings": false, "torch_dtype": "bfloat16"})"},
};

inline bool IsModelShape(std::string_view name) {
  return std::ranges::find(kModelShapes, name, &ModelShape::name) != std::end(kModelShapes);
}

// "160m|0.5b|…", for usages.
inline std::string ModelShapeNames() {
  std::string names;
  for (const ModelShape& shape : kModelShapes) {
    names.append(names.empty() ? "" : "|").append(shape.name);
  }
  return names;
}

}  // namespace tandem
