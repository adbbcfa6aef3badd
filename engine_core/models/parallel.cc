#include "engine_core/models/parallel.h"

#include <utility>

namespace tandem {

// A LayerNorm is computed at once, so the MLP's input does not have the attention in it.
void ParallelLayer::Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const {
  decoder->Norm(norm);
  decoder->ProjectQkv(attention);
  if (!mlp_norm.weight.view().empty()) decoder->Norm(mlp_norm);
  decoder->AttendProjected(attention, kv, plan);
  decoder->RunMlp(mlp);
}

StatusOr<std::unique_ptr<Stage>> LoadParallelLike(const LoadContext& context,
                                                  DecoderOptions options,
                                                  ParallelLayerLoader load_layer) {
  return Stage::Load(
      context, std::move(options),
      [&](const LayerPlace& place) -> StatusOr<std::unique_ptr<Layer>> {
        ASSIGN_OR_RETURN(ParallelLayer layer, load_layer(context, place));
        return std::unique_ptr<Layer>(std::make_unique<ParallelLayer>(std::move(layer)));
      });
}

}  // namespace tandem
