// Qwen2 and 2.5: Llama's layer with biases on q, k and v, and none on the output projection; a
// window in the layers that the config chooses.
// Source: Yang et al. 2024; HF's Qwen2ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadQwen2Layer(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadLlamaLayer(context, place));
  ASSIGN_OR_RETURN(layer.attention.qkv.bias, LoadBias(context, QkvBlocks(context, place)));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadQwen2(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadQwen2Layer);
}

}  // namespace tandem
