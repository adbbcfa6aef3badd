#pragma once

// How ranks that share a layer's weights make whole tensors of their parts. Every matrix is split
// by its output rows (engine_core/models/rank_share.h), so a rank computes some columns of what the
// next product reads as a whole: it writes them to Part, and Gather brings those of the others.
// No sum is cut, so the bits are those of one rank.
// SharedCommunicator has such tensors in memory that all ranks of a host map, where nothing is
// copied; CudaExchange has them on each rank's device and copies between devices.
// Thread: engine loop. All ranks call the same functions with equal sizes in the same order; on a
// device a call takes its place in the order of the ops, as an op does. Ownership: views are
// borrowed until Gather.
// Failure: Allocate's is a Status. Else status(), final: a rank is lost, and no result may be used.

#include <initializer_list>
#include <vector>

#include "common/check.h"
#include "common/status.h"
#include "kernels/slice.h"
#include "kernels/tensor.h"

namespace tandem {

inline constexpr int kMaxDeviceRanks = 16;  // where each has a device

// Which columns of a tensor each rank writes; those of several ranks may be the same ones.
struct RankColumns {
  std::vector<Slice> of_rank;
  int rank = 0;  // this one

  Slice own() const { return of_rank[static_cast<size_t>(rank)]; }
};

// The RMS norm of rows that were gathered: Ops::RmsNorm.
struct ExchangeNorm {
  Tensor out, weight;
  float epsilon = 0;
};

class RankExchange {
 public:
  virtual ~RankExchange() = default;

  // Whether all ranks see one memory. Then a part is a view of the whole, and what one rank alone
  // writes is written for all.
  virtual bool is_shared() const = 0;
  // A tensor that all ranks have, zeros. All ranks allocate the same ones in the same order.
  virtual StatusOr<OwnedTensor> Allocate(DType dtype, std::initializer_list<int64_t> shape) = 0;

  // Where this rank may write its columns of x, valid until the next Gather. Not filled, and on a
  // device not what x has there.
  virtual Tensor Part(const Tensor& x, const RankColumns& columns) = 0;
  // x: [T, n] f32, bf16, its columns those of all ranks. `part`: this rank's, from Part, or its
  // columns of x itself.
  virtual void Gather(const Tensor& x, const Tensor& part, const RankColumns& columns) = 0;
  // Whether Gather of such a tensor can be one kernel with the norm of its rows.
  virtual bool GathersNormed(const Tensor& /*x*/, const RankColumns& /*columns*/) const {
    return false;
  }
  // Gather, and the norm; the bits of both one after the other.  REQUIRES: GathersNormed.
  virtual void GatherNormed(const Tensor& /*x*/, const Tensor& /*part*/,
                            const RankColumns& /*columns*/, const ExchangeNorm& /*norm*/) {
    CHECK(false) << "GatherNormed without GathersNormed";
  }
  // Waits until all ranks are here, where they share memory; nothing else.
  virtual void Meet() = 0;

  // x = the sum of all ranks' x, which is their own.
  virtual void Sum(const Tensor& x) = 0;
  // The first rank's ids, which its device may have made, to all.  ids: [T] i32, of the step.
  virtual void ShareIds(const Tensor& ids) = 0;
  // ids less `first`, valid until the next call: outside a rank's table where they are another's.
  virtual Tensor IdsFrom(const Tensor& ids, int64_t first) = 0;

  virtual Status status() = 0;
};

}  // namespace tandem
