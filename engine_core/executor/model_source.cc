#include "engine_core/executor/model_source.h"

#include "engine_core/models/registry.h"
#include "engine_core/weights/open_weights.h"

namespace tandem {

Status ModelSource::Open() {
  if (weights_ != nullptr) return OkStatus();
  ASSIGN_OR_RETURN(
      weights_, OpenWeights(options_.path, options_.load_format, options_.config, options_.seed));
  return OkStatus();
}

StatusOr<std::unique_ptr<Model>> ModelSource::Load(Backend* backend, AdapterSites* adapter_sites) {
  RETURN_IF_ERROR(Open());
  LoadContext context = {options_.config, options_.limits, *weights_, *backend, options_.formats};
  context.kv_format = options_.kv_format;
  context.adapter_sites = adapter_sites;
  context.makes_logits = options_.makes_logits;
  if (RankGroup* ranks = options_.ranks; ranks != nullptr) {
    context.stage = ranks->place().stage;
    context.share = ranks->place().share;
    context.splits_experts = options_.splits_experts;
    if (context.share.size > 1) context.ranks = ranks->ExchangeOf(backend);
  }
  return LoadModel(context);
}

StatusOr<std::unique_ptr<VisionTower>> ModelSource::LoadTower(Backend* backend) {
  CHECK(options_.ranks == nullptr) << "towers are not built for ranks";
  RETURN_IF_ERROR(Open());
  const LoadContext context = {options_.config, options_.limits, *weights_, *backend,
                               options_.formats};
  return LoadVisionTower(context);
}

}  // namespace tandem
