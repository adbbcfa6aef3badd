#include "engine_core/models/rank_split.h"

namespace tandem {
namespace {

template <class SliceOf>
RankColumns ColumnsOfRanks(RankShare share, SliceOf slice_of) {
  RankColumns columns = {.of_rank = {}, .rank = share.rank};
  for (int rank = 0; rank < share.size; ++rank) {
    columns.of_rank.push_back(slice_of(RankShare{rank, share.size}));
  }
  return columns;
}

}  // namespace

RankColumns EvenColumns(RankShare share, int64_t n) {
  return ColumnsOfRanks(share, [n](RankShare rank) { return rank.Of(n); });
}

RankColumns AboutEvenColumns(RankShare share, int64_t n) {
  return ColumnsOfRanks(share, [n](RankShare rank) { return rank.OfAbout(n); });
}

RankColumns KvColumns(const ModelConfig& config, RankShare share) {
  return ColumnsOfRanks(share,
                        [&config](RankShare rank) { return HeadsOf(config, rank).kv_rows(); });
}

const RankColumns& RankSplit::Columns(const Tensor& x) {
  const auto [entry, is_new] = columns_.try_emplace(x.shape[1]);
  if (is_new) entry->second = EvenColumns(share_, x.shape[1]);
  return entry->second;
}

}  // namespace tandem
