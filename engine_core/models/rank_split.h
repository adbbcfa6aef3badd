#pragma once

// The parts of one rank, and how they become whole, for tensors whose columns the ranks of a stage
// share evenly. Of one rank everything is whole already.
// Thread: engine loop. Borrows the exchange. Failure: the exchange's.

#include <map>

#include "engine_core/models/rank_share.h"
#include "kernels/rank_exchange.h"

namespace tandem {

// REQUIRES: size divides n.
RankColumns EvenColumns(RankShare share, int64_t n);
// Where it does not: the last ranks have fewer.
RankColumns AboutEvenColumns(RankShare share, int64_t n);
// Of the keys of all heads; ranks that outnumber the heads have copies.
RankColumns KvColumns(const ModelConfig& config, RankShare share);

class RankSplit {
 public:
  // ranks: null: there is one.
  RankSplit(RankShare share, RankExchange* ranks) : share_(share), ranks_(ranks) {}

  RankExchange* ranks() const { return ranks_; }
  // This rank's columns of x.
  Tensor Own(const Tensor& x) const {
    const Slice own = share_.Of(x.shape[1]);
    return x.Columns(own.begin, own.count);
  }
  // Where it writes them; RankExchange::Part.
  Tensor Part(const Tensor& x) { return ranks_ == nullptr ? x : ranks_->Part(x, Columns(x)); }
  // x has the columns of all ranks.
  void Gather(const Tensor& x, const Tensor& part) {
    if (ranks_ != nullptr) ranks_->Gather(x, part, Columns(x));
  }
  // And the norm of its rows; false: nothing is done, one kernel cannot do that.
  bool TryGatherNormed(const Tensor& x, const Tensor& part, const ExchangeNorm& norm) {
    if (ranks_ == nullptr || !ranks_->GathersNormed(x, Columns(x))) return false;
    ranks_->GatherNormed(x, part, Columns(x), norm);
    return true;
  }

 private:
  const RankColumns& Columns(const Tensor& x);

  RankShare share_;
  RankExchange* ranks_;
  std::map<int64_t, RankColumns> columns_;  // by their number
};

}  // namespace tandem
