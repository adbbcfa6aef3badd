// Qwen2 and 2.5: Llama's layer with biases on q, k and v, and none on the way out; a window in the
// layers that the config chooses.
// Source: Yang et al. 2024; HF's Qwen2ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadQwen2Layer(const LoadContext& context, const std::string& prefix) {
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadLlamaLayer(context, prefix));
  const auto qkv = QkvBlocks(context.config, prefix + ".self_attn");
  ASSIGN_OR_RETURN(layer.attention.qkv.bias, LoadBias(context, qkv));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Model>> LoadQwen2(const LoadContext& context) {
  return LoadLlamaLike(context, LoadQwen2Layer);
}

}  // namespace tandem
