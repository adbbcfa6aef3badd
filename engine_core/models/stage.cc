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

void SetTaps(std::span<const int> layers, const Tensor& states, std::vector<StateTap>* taps) {
  taps->resize(layers.size());
  const auto num_taps = static_cast<int64_t>(layers.size());
  for (int64_t i = 0; i < num_taps; ++i) {
    const int64_t hidden = states.shape[1] / num_taps;
    const auto tap = static_cast<size_t>(i);
    (*taps)[tap] = {.num_layers = layers[tap], .out = states.Columns(i * hidden, hidden)};
  }
}

Tensor Stage::Forward(const ModelStep& step, int first_layer, const Tensor& hidden) {
  decoder_.SetAdapters(step.adapters);
  decoder_.SetPositions(step.mrope_positions, step.last_seen);
  decoder_.SetLayerInputs(step.layer_inputs);
  decoder_.SetTurn(step.turn);
  if (is_first_) {
    decoder_.Embed(step.token_ids, step.plan->batch().positions, step.token_types, step.embedded,
                   hidden);
  } else {
    decoder_.Continue(hidden);
  }
  int layer_idx = first_layer;
  const auto fill_taps = [&](int64_t num_layers) {
    for (const StateTap& tap : step.taps) {
      if (tap.num_layers == num_layers) decoder_.CopyStates(tap.out);
    }
  };
  if (is_first_) fill_taps(0);
  // Where nothing is read in a later step, the layers take turns in the memory of one.
  const bool shares_kv = step.kv_cache->spec().num_layers == 1;
  for (size_t i = 0; i < layers_.size(); ++i) {
    KvPlace place = {.layer = shares_kv ? 0 : layer_idx};
    if (!step.kv_places.empty()) place = step.kv_places[static_cast<size_t>(layer_idx)];
    LayerKv kv = step.kv_cache->layer(place.layer);
    const int owner = shares_kv ? layer_idx : step.kv_cache->spec().kv_owner(layer_idx);
    const KvScales& scales = kv_scales_[static_cast<size_t>(owner - first_layer)];
    kv.k_scale = scales.k;
    kv.v_scale = scales.v;
    layers_[i]->Run(&decoder_, kv, step.PlanOf(place.group));
    const int64_t layer = begin_ + static_cast<int64_t>(i);
    decoder_.AddDeepstack(step.deepstack, layer);
    fill_taps(layer + 1);
    ++layer_idx;
  }
  return decoder_.residual();
}

}  // namespace tandem
