#pragma once

// Llama (1 to 3.3), Mistral (its layers have the config's window) and every architecture whose
// layers run as Llama's do:
//   x += attention(norm(x));  x += mlp(norm(x))
// Architectures with other norms, biases or activations load the same layer in another way.
// Thread, ownership: as Model. Source: Touvron et al. 2023; HF's LlamaForCausalLM.

#include <memory>
#include <string>

#include "engine_core/models/stage.h"

namespace tandem {

struct LlamaLayer final : Layer {
  NormLayer input_norm;
  AttentionLayer attention;
  NormLayer post_attention_norm;
  MlpLayer mlp;

  void Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const override;
};

StatusOr<LlamaLayer> LoadLlamaLayer(const LoadContext& context, const LayerPlace& place);

// input_norm and post_attention_norm alone.
Status LoadLlamaNorms(const LoadContext& context, const LayerPlace& place, LlamaLayer* layer);

// The same as LayerNorms.
Status LoadLayerNorms(const LoadContext& context, const LayerPlace& place, LlamaLayer* layer);

// The norms of layers that have them after attention and MLP instead of before.
Status LoadNormsAfter(const LoadContext& context, const LayerPlace& place, LlamaLayer* layer);

// A stage of such layers.
using LlamaLayerLoader = StatusOr<LlamaLayer> (*)(const LoadContext&, const LayerPlace&);
StatusOr<std::unique_ptr<Stage>> LoadLlamaLike(const LoadContext& context, DecoderOptions options,
                                               LlamaLayerLoader load_layer);

}  // namespace tandem
