#pragma once

// The RMS norm of a row, by a block: the same bits in every kernel that ends with one.

#include "kernels/cuda/device.cuh"

namespace tandem {

// out = x / rms(x) * weight, of `hidden` numbers. A row is bound by the time from a load to its
// number, so all loads of a block are in flight at once: those of the weight from the constructor
// on, which may be before the row is there. What does not fit the registers is read once more.
template <int kThreads>
class RowNorm {
 public:
  __device__ RowNorm(const float* weight, int64_t hidden) : weight_(weight), hidden_(hidden) {
    Load(weight, 0, weights_);
  }

  // Every thread of the block has its part of the row when this returns, not yet those of others.
  template <class Out, class X>
  __device__ void Apply(Out* out, const X* x, float epsilon) const {
    Piece first[kPieces];
    Load(x, 0, first);
    float squares = SquaresOf(first);
    for (int64_t begin = kAtOnce; begin < hidden_; begin += kAtOnce) {
      Piece more[kPieces];
      Load(x, begin, more);
      squares += SquaresOf(more);
    }
    const float scale = rsqrtf(BlockSum<kThreads>(squares) / static_cast<float>(hidden_) + epsilon);
    Store(out, 0, first, weights_, scale);
    for (int64_t begin = kAtOnce; begin < hidden_; begin += kAtOnce) {
      Piece more[kPieces], weights[kPieces];
      Load(x, begin, more);
      Load(weight_, begin, weights);
      Store(out, begin, more, weights, scale);
    }
  }

 private:
  static constexpr int kWidth = 4;
  static constexpr int kPieces = 4;
  static constexpr int64_t kAtOnce = int64_t{kThreads} * kWidth * kPieces;
  using Piece = Numbers<kWidth>;

  __device__ static int64_t PlaceOf(int64_t begin, int piece) {
    return begin + (int64_t{piece} * kThreads + threadIdx.x) * kWidth;
  }
  template <class T>
  __device__ bool IsWide(const T* row) const {
    return hidden_ % kWidth == 0 && Piece::IsAligned(row);
  }
  template <class T>
  __device__ void Load(const T* from, int64_t begin, Piece (&pieces)[kPieces]) const {
    if (IsWide(from)) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const int64_t at = PlaceOf(begin, i);
        pieces[i] = {};
        if (at < hidden_) pieces[i].Load(from + at);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int64_t at = PlaceOf(begin, i);
      pieces[i].LoadSome(from + at, hidden_ - at);
    }
  }
  __device__ static float SquaresOf(const Piece (&pieces)[kPieces]) {
    float squares = 0;
#pragma unroll
    for (const Piece& piece : pieces) {
#pragma unroll
      for (const float value : piece.values) squares += value * value;
    }
    return squares;
  }
  template <class Out>
  __device__ void Store(Out* out, int64_t begin, const Piece (&pieces)[kPieces],
                        const Piece (&weights)[kPieces], float scale) const {
    const bool is_wide = IsWide(out);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int64_t at = PlaceOf(begin, i);
      Piece normed;
#pragma unroll
      for (int n = 0; n < kWidth; ++n) {
        normed.values[n] = pieces[i].values[n] * scale * weights[i].values[n];
      }
      if (!is_wide) {
        normed.StoreSome(out + at, hidden_ - at);
      } else if (at < hidden_) {
        normed.Store(out + at);
      }
    }
  }

  const float* weight_;
  int64_t hidden_;
  Piece weights_[kPieces];
};

}  // namespace tandem
