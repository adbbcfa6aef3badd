#include "engine_core/models/stage.h"

#include <utility>

namespace tandem {

StatusOr<std::unique_ptr<Stage>> Stage::Load(const LoadContext& context, DecoderOptions options,
                                             const LayerLoader& load_layer) {
  const std::string layers_prefix = options.layers + ".";
  const bool is_alone = !context.only_layer.empty();
  LoadContext ends = context;
  if (is_alone) ends.stage = kNoEnds;
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::Load(ends, std::move(options)));
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<KvScales> kv_scales;
  const Slice slice = LayersOf(context.config, context.stage);
  for (int64_t i = slice.begin; i < slice.end(); ++i) {
    const std::string prefix = is_alone ? context.only_layer : layers_prefix + std::to_string(i);
    ASSIGN_OR_RETURN(std::unique_ptr<Layer> layer, load_layer({.idx = i, .prefix = prefix}));
    layers.push_back(std::move(layer));
    ASSIGN_OR_RETURN(const KvScales scales, LoadKvScales(context, prefix));
    kv_scales.push_back(scales);
  }
  return std::unique_ptr<Stage>(new Stage(std::move(decoder), std::move(layers),
                                          std::move(kv_scales), slice.begin,
                                          ends.stage.is_first()));
}

Tensor Stage::Forward(const ModelStep& step, int first_layer, const Tensor& hidden) {
  decoder_.SetAdapters(step.adapters);
  decoder_.SetPositions(step.mrope_positions, step.last_seen);
  decoder_.SetLayerInputs(step.layer_inputs);
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
  for (size_t i = 0; i < layers_.size(); ++i) {
    fill_taps();
    KvPlace place = {.layer = shares_kv ? 0 : layer_idx};
    if (!step.kv_places.empty()) place = step.kv_places[static_cast<size_t>(layer_idx)];
    LayerKv kv = step.kv_cache->layer(place.layer);
    const int owner = shares_kv ? layer_idx : step.kv_cache->spec().kv_owner(layer_idx);
    const KvScales& scales = kv_scales_[static_cast<size_t>(owner - first_layer)];
    kv.k_scale = scales.k;
    kv.v_scale = scales.v;
    layers_[i]->Run(&decoder_, kv, step.PlanOf(place.group));
    decoder_.AddDeepstack(step.deepstack, begin_ + static_cast<int64_t>(i));
    ++layer_idx;
  }
  fill_taps();
  return decoder_.residual();
}

}  // namespace tandem
