#pragma once

// Pairs of adapters for CUDA: packed in host memory by the thread that loads an adapter, and copied
// to a place of the device's table when the adapter is needed there. A place has room for the pairs
// of any adapter, so memory is planned at start and captured kernels find what they name.
//   A: [rank, k], of all blocks one after another; of an embedding [ids, rank]
//   B: [n, width], of each row the numbers of the block that it lies in
//   first: [n], of each row the rank that its first number belongs to
// Rows of A and B are padded with zeros to 16 bytes.
// Thread: CudaPair any, CudaPairTable the engine loop. Failure: memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/status.h"
#include "kernels/adapter_pair.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/tensor.h"

namespace tandem {

// The parts of a pair, one after another.
struct CudaPairLayout {
  int64_t rank = 0;   // of all blocks
  int64_t width = 0;  // numbers of a row of B
  int64_t a_rows = 0, a_stride = 0;
  int64_t b_begin = 0, first_begin = 0, num_bytes = 0;  // bytes

  // max_rank: of a block.
  static CudaPairLayout Of(const PairShape& shape, int64_t rank, int64_t max_rank, DType dtype);
};

class CudaPair final : public PackedPair {
 public:
  static StatusOr<std::unique_ptr<PackedPair>> Pack(std::span<const PairSource> blocks, int64_t n,
                                                    int64_t k, DType dtype);
  static StatusOr<std::unique_ptr<PackedPair>> PackEmbedding(const PairSource& pair, DType dtype);

  int64_t num_bytes() const override { return layout_.num_bytes; }
  const CudaPairLayout& layout() const { return layout_; }
  const Tensor& bytes() const { return memory_.view(); }  // i8, in host memory

 private:
  CudaPair(int64_t n, int64_t k, CudaPairLayout layout, OwnedTensor memory)
      : PackedPair(n, k), layout_(layout), memory_(std::move(memory)) {}
  void PackB(std::span<const PairSource> blocks, DType dtype);
  std::byte* At(int64_t begin) const {
    return static_cast<std::byte*>(memory_.view().data) + begin;
  }

  CudaPairLayout layout_;
  OwnedTensor memory_;
};

// What kernels know of a pair. rank 0: the adapter leaves the matrix as it is.
struct CudaPairEntry {
  const void* a = nullptr;
  const void* b = nullptr;
  const int32_t* first = nullptr;
  int64_t a_stride = 0;
  int32_t rank = 0, width = 0;
};

class CudaPairTable final : public PairTable {
 public:
  static StatusOr<std::unique_ptr<PairTable>> Create(std::span<const PairShape> sites,
                                                     int64_t num_places, int64_t max_rank,
                                                     DType dtype, CudaDevice* device);

  void Load(int64_t place, std::span<const PackedPair* const> pairs) override;

  int64_t num_places() const { return entries_.view().rows(); }
  int64_t num_sites() const { return static_cast<int64_t>(rooms_.size()); }
  // Of all blocks of any adapter.
  int64_t max_rank(int64_t site) const { return rooms_[static_cast<size_t>(site)].rank; }
  // Of an embedding.
  int64_t num_ids(int64_t site) const { return rooms_[static_cast<size_t>(site)].num_ids; }
  // [places, sites], on the device.
  const CudaPairEntry* entries() const {
    return static_cast<const CudaPairEntry*>(entries_.view().data);
  }

 private:
  // Of a site, in each place.
  struct Room {
    int64_t begin = 0, num_bytes = 0, rank = 0, num_ids = 0;
  };

  explicit CudaPairTable(CudaDevice* device) : device_(device) {}
  CudaPairEntry Copy(int64_t place, const Room& room, const CudaPair& pair);

  CudaDevice* device_;
  std::vector<Room> rooms_;
  OwnedTensor memory_;   // [places, .] i8
  OwnedTensor entries_;  // [places, words of CudaPairEntry of all sites] i32
};

}  // namespace tandem
