#pragma once

// Exchanges of few rows between GPUs that read each other's memory. Each rank has a buffer that the
// others map. One kernel puts the rank's columns there, raises a flag at each of the others, waits
// for theirs, and writes the whole rows, with their norm where one follows: one trip between
// devices. It counts the exchanges on the device, so captured steps have the same kernel.
//
// Two halves of the buffer take turns. A rank that writes a half for exchange n + 2 has seen all
// flags of n + 1; a rank raises those when its exchange n has ended, so nobody reads that half.
//
// Thread: engine loop. Owns: its buffer, and the mappings of the others'; borrows the device.
// Failure: Map returns null where memory cannot be shared. A rank that dies leaves the others'
// kernels waiting, as NCCL does: the engine ends with it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/status.h"
#include "kernels/communicator.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/rank_exchange.h"

namespace tandem {

struct PeerAddress;

class CudaPeers {
 public:
  // All ranks call it; null at all of them where one cannot read another's memory.
  static StatusOr<std::unique_ptr<CudaPeers>> Map(CudaDevice* device, Communicator* communicator);
  ~CudaPeers();
  CudaPeers(const CudaPeers&) = delete;
  CudaPeers& operator=(const CudaPeers&) = delete;

  // Whether x is small enough.
  static bool Takes(const Tensor& x, const RankColumns& columns);
  // Whether GatherNormed takes it, too.
  static bool Norms(const Tensor& x, const RankColumns& columns);

  // RankExchange's, of what they take.
  void Gather(const Tensor& x, const Tensor& part, const RankColumns& columns);
  void GatherNormed(const Tensor& x, const Tensor& part, const RankColumns& columns,
                    const ExchangeNorm& norm);

  // Rows that an exchange may have: one block for each, all of which run at once.
  static constexpr int kMostRows = 64;
  // Of a rank's part, all rows together.
  static constexpr int64_t kHalfBytes = int64_t{1} << 20;

  // What lies in a buffer.
  struct Room {
    std::byte halves[2][kHalfBytes];
    uint32_t flags[kMostRows][kMaxDeviceRanks];  // the newest exchange of each row at each rank
    uint32_t counts[kMostRows];                  // the rank's own
  };

 private:
  CudaPeers(CudaDevice* device, int rank, int size) : device_(device), rank_(rank), size_(size) {}
  Status MapRank(int rank, const PeerAddress& address);

  CudaDevice* device_;
  int rank_, size_;
  std::shared_ptr<OwnedTensor> room_;
  std::array<Room*, kMaxDeviceRanks> rooms_ = {};
  std::array<void*, kMaxDeviceRanks> mapped_ = {};  // of other processes
  // Of ranks that are threads of this process, which may end first.
  std::array<std::shared_ptr<OwnedTensor>, kMaxDeviceRanks> kept_;
};

}  // namespace tandem
