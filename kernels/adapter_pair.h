#pragma once

// The low-rank pair that a LoRA adapter adds to one weight matrix:
//   y = x W^T + scale * (x A^T) B^T,   A: [r, k], B: [n, r]
// Where a matrix was packed from several row blocks (q, k, v), a pair has one A and B for each
// block that the adapter changes; the other blocks' rows get nothing.
// Thread: packed on any thread (Backend::PackPair), then read by the ops on the engine loop.
// Ownership: the memory is the pair's; it goes away before its backend.

#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace tandem {

// What Backend::PackPair reads, in host memory: f32, bf16 or f16.
struct PairSource {
  Tensor a;           // [r, k]; of an embedding [r, V]
  Tensor b;           // [rows, r]
  float scale = 1;    // of B
  int64_t begin = 0;  // the first of the matrix's rows that B adds to
};

class PackedPair {
 public:
  virtual ~PackedPair() = default;
  int64_t n() const { return n_; }  // the matrix's
  int64_t k() const { return k_; }
  virtual int64_t num_bytes() const = 0;

 protected:
  PackedPair(int64_t n, int64_t k) : n_(n), k_(k) {}

 private:
  int64_t n_;
  int64_t k_;
};

// What a PairTable knows of a matrix: its site.
struct PairShape {
  int64_t n = 0;  // of an embedding, columns
  int64_t k = 0;  // of an embedding, ids
  int64_t num_blocks = 1;
  bool is_embedding = false;
};

// Pairs in the memory of a device whose ops cannot read the host's. An adapter has a place there,
// with room for the pairs of any adapter, and ops name places: so captured ops serve adapters that
// come later.
// Thread: engine loop. Ownership: made by Backend::MakePairTable; it goes away before the backend.
class PairTable {
 public:
  virtual ~PairTable() = default;
  // In place of what was there, after the ops so far. pairs: of each site; null: the adapter leaves
  // that matrix as it is. Waits until they are copied.
  virtual void Load(int64_t place, std::span<const PackedPair* const> pairs) = 0;
};

// Which of an op's rows get which pair.
struct AdapterRows {
  Tensor slots;      // [T] i32, of each token of the step: an index into `pairs`; -1: none
  Tensor rows = {};  // i32, the token of each of the op's rows; empty: row t is token t
  std::span<const PackedPair* const> pairs = {};  // null: the adapter leaves the matrix as it is
  // In place of `pairs` where the device has a table; slots are places.
  const PairTable* table = nullptr;
  int64_t site = 0;         // of the matrix, or of the first expert's
  int64_t site_stride = 0;  // from an expert's to that of the next one

  // No row gets one.
  bool empty() const { return pairs.empty() && table == nullptr; }
};

}  // namespace tandem
