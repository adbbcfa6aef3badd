#include "engine_core/models/stage.h"

#include <utility>

namespace tandem {

StatusOr<std::unique_ptr<Stage>> Stage::Load(const LoadContext& context, DecoderOptions options,
                                             const LayerLoader& load_layer) {
  const std::string layers_prefix = options.layers + ".";
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::Load(context, std::move(options)));
  std::vector<std::unique_ptr<Layer>> layers;
  const Slice slice = LayersOf(context.config.num_layers, context.stage);
  for (int64_t i = slice.begin; i < slice.end(); ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<Layer> layer,
                     load_layer({.idx = i, .prefix = layers_prefix + std::to_string(i)}));
    layers.push_back(std::move(layer));
  }
  return std::unique_ptr<Stage>(
      new Stage(std::move(decoder), std::move(layers), context.stage.is_first()));
}

Tensor Stage::Forward(const ModelStep& step, int first_layer, const Tensor& hidden) {
  decoder_.SetAdapters(step.adapters);
  if (is_first_) {
    decoder_.Embed(step.token_ids, step.plan->batch().positions, step.token_types, step.embedded,
                   hidden);
  } else {
    decoder_.Continue(hidden);
  }
  int layer_idx = first_layer;
  const auto fill_taps = [&] {
    for (const StateTap& tap : step.taps) {
      if (tap.num_layers == layer_idx) decoder_.CopyStates(tap.out);
    }
  };
  // Where nothing is read in a later step, the layers take turns in the memory of one.
  const bool shares_kv = step.kv_cache->spec().num_layers == 1;
  for (const auto& layer : layers_) {
    fill_taps();
    layer->Run(&decoder_, step.kv_cache->layer(shares_kv ? 0 : layer_idx), *step.plan);
    ++layer_idx;
  }
  fill_taps();
  return decoder_.residual();
}

}  // namespace tandem
