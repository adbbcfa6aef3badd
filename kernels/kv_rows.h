#pragma once

// Keys and values of whole blocks as rows that know no backend: of each token, for each KV head its
// K and after it its V, [block_size, num_kv_heads, 2 * head_dim], in the cache's own type. What was
// read from one model's caches can be written to others' of the same type, bit for bit, however
// ranks divide its layers and heads.
// Thread: any; a value with views of the cache, which must outlive it. Failure: UNIMPLEMENTED for a
// cache of a device, of another format than kCompute, of latents, or with states.
// REQUIRES: nobody writes to a block that is read, and nobody reads one that is written.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "kernels/backend.h"
#include "kernels/kv_caches.h"

namespace tandem {

class KvRows {
 public:
  // backend: the one that made the caches, or its like.
  static StatusOr<KvRows> Of(const Backend& backend, const KvCaches& caches);

  DType dtype() const { return dtype_; }
  int block_size() const { return block_size_; }
  // The model's layers that have K and V of their own, ascending.
  const std::vector<int>& layers() const { return numbers_; }
  int num_kv_heads(size_t i) const { return num_heads_[i]; }  // of layers()[i]
  int head_dim(size_t i) const { return pieces_[i].front().kv.head_dim; }
  // Of a token in layers()[i].
  int64_t BytesPerToken(size_t i) const {
    return int64_t{2} * num_kv_heads(i) * head_dim(i) * SizeOf(dtype_);
  }

  // rows: block_size * BytesPerToken(i), aligned to the type.
  void Read(size_t i, BlockId block, std::byte* rows) const;
  void Write(size_t i, BlockId block, const std::byte* rows) const;

 private:
  // A run of a layer's heads, of one rank. Ranks that outnumber the heads have copies.
  struct Piece {
    LayerKv kv;
    int first_head = 0;
    bool is_copy = false;
  };

  KvRows() = default;
  void Add(const KvCachePart& part);

  DType dtype_ = DType::kF32;
  int block_size_ = 0;
  bool is_tiled_ = false;  // the cpu backend's
  std::vector<int> numbers_;
  // Parallel.
  std::vector<std::vector<Piece>> pieces_;
  std::vector<int> num_heads_;
};

}  // namespace tandem
