#include "engine_core/executor/rank_caches.h"

#include <utility>

#include "engine_core/executor/model_sizes.h"

namespace tandem {

StatusOr<RankCaches> RankCaches::Map(const ModelConfig& model, const ModelRunnerOptions& options,
                                     ModelRunner* runner) {
  RankCaches all;
  if (options.ranks == nullptr) {
    all.caches_.push_back({.cache = &runner->kv_cache()});
    return all;
  }
  const ExecutorLimits& limits = options.limits;
  for (int rank = 0; rank < options.ranks->counts().num_ranks(); ++rank) {
    const RankPlace place = options.ranks->counts().PlaceOf(rank);
    const Slice layers = LayersOf(model, place.stage);
    KvCachePart part = {.cache = &runner->kv_cache(),
                        .first_layer = static_cast<int>(layers.begin)};
    if (rank != options.ranks->rank()) {
      ASSIGN_OR_RETURN(auto cache, runner->MapKvCacheOf(
                                       rank, KvSpecOf(model, limits.block_size, 0,
                                                      options.kv_format, place, limits.groups)));
      part.cache = all.others_.emplace_back(std::move(cache)).get();
    }
    for (int layer = 0; layer < part.cache->spec().num_layers; ++layer) {
      part.kv_heads.push_back(HeadsOfLayer(model, layers.begin + layer, place.share).kv_heads);
    }
    all.caches_.push_back(std::move(part));
  }
  return all;
}

}  // namespace tandem
