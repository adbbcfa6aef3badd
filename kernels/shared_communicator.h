#pragma once

// The Communicator of ranks that are processes (or threads) of one host, through memory that all of
// them map. Besides the exchanges of tensors it has what only such ranks can do: tensors that are
// in the memory of all of them (Allocate). Each rank writes its own part of such a tensor in place;
// after Meet all read the whole. So a layer whose output columns are split costs no copy and no
// sum, but one meeting.
// Sums are taken in float32 in the order of the ranks, so every rank gets the same bits.
//
// Thread: engine loop of each rank. Ownership: borrows the memory, which outlives it and its
// tensors. Failure: Allocate's is a Status. A rank that dies leaves the others waiting: a watcher
// calls Abandon, from when on nothing waits and status() is not OK.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "common/futex.h"
#include "common/shared_memory.h"
#include "common/status.h"
#include "common/wait_mark.h"
#include "kernels/communicator.h"
#include "kernels/rank_exchange.h"
#include "kernels/tensor.h"

namespace tandem {

class SharedCommunicator final : public Communicator, public RankExchange {
 public:
  // The part of the shared memory that ranks 0 .. size - 1 use, zeros at first: from `begin` on,
  // which is a multiple of SharedMemory::kPageBytes; its end is theirs to watch.
  struct Place {
    const SharedMemory* memory = nullptr;
    int64_t begin = 0;
  };
  // mark: of this rank's sleeps in meetings.
  static StatusOr<std::unique_ptr<SharedCommunicator>> Create(const Place& place, int rank,
                                                              int size, int spins = kFutexSpins,
                                                              const WaitMark& mark = {});

  // A tensor in the memory of all ranks, zeros. All ranks allocate the same ones in the same order.
  StatusOr<OwnedTensor> Allocate(DType dtype, std::initializer_list<int64_t> shape) override;
  // Of tensors that are gone, at all ranks before one allocates again: their memory is given back,
  // and the next ones take their place.
  Status ForgetTensors();
  // The first byte after what has been allocated: equal at all ranks, or they differ in their
  // settings.
  int64_t end() const { return end_; }

  // Returns when every rank has called it; then what each wrote before can be read by all.
  void Meet() override;
  // How often this rank has met the others; other threads may read it.
  uint32_t num_meetings() const { return words_->generation.load(std::memory_order_relaxed); }

  bool is_shared() const override { return true; }
  Tensor Part(const Tensor& x, const RankColumns& columns) override {
    return x.Columns(columns.own().begin, columns.own().count);
  }
  void Gather(const Tensor&, const Tensor&, const RankColumns&) override { Meet(); }
  void Sum(const Tensor& x) override { AllReduce(x); }
  void ShareIds(const Tensor&) override {}  // they are in the memory of all
  Tensor IdsFrom(const Tensor& ids, int64_t first) override;

  void AllReduce(const Tensor& x) override;
  void AllGather(const Tensor& x) override;
  void Broadcast(const Tensor& x, int root) override;
  Status status() override;
  void Abandon();

 private:
  // An exchange of tensors goes through this many bytes of each rank at a time.
  static constexpr int64_t kChunkBytes = 256 << 10;

  struct Words {
    alignas(64) FutexWord num_arrived{0};
    alignas(64) FutexWord generation{0};  // of meetings
    FutexWord num_asleep{0};
    FutexWord lost{0};
  };

  SharedCommunicator(const Place& place, int rank, int size, int spins, const WaitMark& mark)
      : Communicator(rank, size), place_(place), spins_(spins), mark_(mark), end_(place.begin) {}
  StatusOr<SharedMemory::Mapping> MapNext(int64_t bytes);
  // The chunk of rank r in the exchange that is under way. Two sets take turns: a rank that writes
  // the next one cannot disturb another that still reads this one.
  std::byte* Chunk(int r) const;
  void EndExchange() { chunk_set_ ^= 1; }

  Place place_;
  int spins_;
  WaitMark mark_;
  int64_t tensors_begin_ = 0;
  int64_t end_;
  SharedMemory::Mapping words_memory_;
  Words* words_ = nullptr;
  SharedMemory::Mapping chunks_;
  int chunk_set_ = 0;
  std::vector<int32_t> ids_;  // IdsFrom's
};

}  // namespace tandem
