#pragma once

// How the ranks that share one model exchange tensors. A rank is a process (or a thread) with a
// device of its own and a share of each layer's weights; every rank calls the same functions with
// equal sizes in the same order.
// A layer whose input columns are split calls AllReduce on its output; one whose output columns are
// split calls AllGather where all of them are needed, as for logits.
// Thread: engine loop. A call takes its place in the order of the ops, as an op does. Ownership:
// views are borrowed for the call. Shapes: contiguous, float32 or bf16.
// Failure: status(), final; a shape that does not fit is our own mistake (CHECK).
// Nothing turns this on yet: every backend has OneRank.

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
    CHECK(x.dtype == DType::kF32 || x.dtype == DType::kBf16) << x;
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

// A model that is not split: every tensor is already what an exchange would make it.
class OneRank final : public Communicator {
 public:
  OneRank() : Communicator(0, 1) {}
  void AllReduce(const Tensor& x) override { CheckExchanged(x); }
  void AllGather(const Tensor& x) override { CheckGathered(x); }
  void Broadcast(const Tensor& x, int root) override {
    CheckExchanged(x);
    CheckRoot(root);
  }
  Status status() override { return OkStatus(); }
};

}  // namespace tandem
