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

// Which of an op's rows get which pair.
struct AdapterRows {
  Tensor slots;      // [T] i32, of each token of the step: an index into `pairs`; -1: none
  Tensor rows = {};  // i32, the token of each of the op's rows; empty: row t is token t
  std::span<const PackedPair* const> pairs = {};  // null: the adapter leaves the matrix as it is
};

}  // namespace tandem
