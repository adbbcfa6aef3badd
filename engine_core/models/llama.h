#pragma once

// Llama (1 to 3.3), Mistral (its layers have the config's window) and everything that kept the
// shape, per layer
//   x += attention(norm(x));  x += mlp(norm(x))
// Architectures that add to the layer's attention load it through here as well.
// Thread, ownership: as Model. Source: Touvron et al. 2023; HF's LlamaForCausalLM.

#include <memory>
#include <string>
#include <vector>

#include "engine_core/models/layers.h"

namespace tandem {

struct LlamaLayer {
  OwnedTensor input_norm;  // a norm that is empty leaves its input as it is
  AttentionLayer attention;
  OwnedTensor post_attention_norm;
  MlpLayer mlp;
};

// `prefix`: "model.layers.<i>".
StatusOr<LlamaLayer> LoadLlamaLayer(const LoadContext& context, const std::string& prefix);

// LoadAttention with Qwen3's norm over each head of q and k before the rotation.
StatusOr<AttentionLayer> LoadQwen3Attention(const LoadContext& context, const std::string& prefix);

// input_norm and post_attention_norm alone.
Status LoadLlamaNorms(const LoadContext& context, const std::string& prefix, LlamaLayer* layer);

// Loads the embedding, all layers by `load_layer`, which get the windows of the config, and the
// head.
using LlamaLayerLoader = StatusOr<LlamaLayer> (*)(const LoadContext&, const std::string& prefix);
StatusOr<std::unique_ptr<Model>> LoadLlamaLike(const LoadContext& context,
                                               LlamaLayerLoader load_layer);
// A model that runs layers loaded some other way.
std::unique_ptr<Model> MakeLlamaLike(Decoder decoder, std::vector<LlamaLayer> layers);

}  // namespace tandem
