// Mistral: Llama's layer whose tokens see the last sliding_window keys, where the config has one.
// Source: Jiang et al. 2023; HF's MistralForCausalLM.

#include "engine_core/models/llama.h"
#include "engine_core/models/registry.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadMistralLayer(const LoadContext& context, const std::string& prefix) {
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadLlamaLayer(context, prefix));
  layer.attention.options.sliding_window = static_cast<int32_t>(context.config.sliding_window);
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Model>> LoadMistral(const LoadContext& context) {
  return LoadLlamaLike(context, LoadMistralLayer);
}

}  // namespace tandem
