#include "engine_core/models/olmo2.h"

namespace tandem {

StatusOr<LlamaLayer> LoadOlmo2Layer(const LoadContext& context, const LayerPlace& place) {
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.attention, LoadProjectionNormedAttention(context, place));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place));
  RETURN_IF_ERROR(LoadNormsAfter(context, place, &layer));
  return layer;
}

StatusOr<std::unique_ptr<Stage>> LoadOlmo2(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadOlmo2Layer);
}

}  // namespace tandem
