#pragma once

// How the ranks that share one model exchange tensors. A rank is a process (or a thread) with a
// device of its own and a share of each layer's weights; every rank calls the same functions with
// equal sizes in the same order.
// Models exchange parts of tensors by RankExchange, which on a device is made of these.
// Thread: engine loop. A call takes its place in the order of the ops, as an op does. Ownership:
// views are borrowed for the call. Shapes: contiguous, float32 or bf16; int32 where nothing is
// added. Failure: status(), final; a shape that does not fit is our own mistake (CHECK).

#include <cstdint>

#include "common/check.h"
#include "common/status.h"
#include "kernels/tensor.h"

namespace tandem {

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // x = the sum of all ranks' x. All ranks get the same bits.
  virtual void AllReduce(const Tensor& x) = 0;
  // x: [size, ...]. Before the call row rank() is this rank's own part; after it row r is rank r's.
  virtual void AllGather(const Tensor& x) = 0;
  // x = rank root's x.
  virtual void Broadcast(const Tensor& x, int root) = 0;

  // Why an exchange failed, here or at another rank: from then on no result may be used, and the
  // ranks have to be started again. A caller that waits for the device asks first, since an
  // exchange whose other ranks are gone may never end.
  virtual Status status() = 0;

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {
    CHECK(rank >= 0 && rank < size) << "rank " << rank << " of " << size;
  }

  // What the functions above demand of their arguments.
  static void CheckExchanged(const Tensor& x) {
    CHECK(x.IsContiguous()) << x << ", rows are " << x.row_stride << " apart";
    CHECK(x.dtype == DType::kF32 || x.dtype == DType::kBf16 || x.dtype == DType::kI32) << x;
  }
  static void CheckAdded(const Tensor& x) {
    CheckExchanged(x);
    CHECK(x.dtype != DType::kI32) << x;
  }
  void CheckGathered(const Tensor& x) const {
    CheckExchanged(x);
    CHECK_EQ(x.rows(), size_);
  }
  void CheckRoot(int root) const {
    CHECK(root >= 0 && root < size_) << "root " << root << " of " << size_;
  }

 private:
  int rank_;
  int size_;
};

}  // namespace tandem
