#pragma once

// Weight matrices as a backend packed them: made by Backend::Pack, PackGated and PackExperts, read
// by the ops of the same backend.
// Thread: engine loop. Ownership: the memory is theirs; they go away before their backend.

#include <cstdint>
#include <memory>
#include <vector>

namespace tandem {

// How a matrix is stored. kCompute: in the backend's compute type. The others are integers with one
// float32 scale per row (kernels/quantization.h); Linear (not cuda's) rounds rows of x to int8 too,
// with a scale of its own, max |x| / 127, and multiplies integers:
//   out[t, n] = (sum_k q(x)[t, k] * q(w)[n, k]) * (x_scale[t] * w_scale[n]) + bias[n].
// kStored: in the blocks of its source, or its groups of codes, as they are (stored_blocks.h); a
// matrix that has none is kCompute. Linear rounds each 32 numbers of x to int8 with a scale of
// their own, and adds what each group g of 16 or 32 columns contributes, in their order, in float32
// with one rounding for each product and sum:
//   (sum of integers) * (scale[n, g] * x_scale[t, g]), then offset[n, g] * (x_scale * sum of q(x)).
enum class WeightFormat { kCompute, kInt8, kInt4Group32, kInt4Group128, kStored };

// What the pair of an adapter has to know of its matrix, also while that is not in memory.
struct MatrixForm {
  int64_t n = 0, k = 0;
  bool pairs_rows = false;  // in what Linear sums, a row of gate stands beside its row of up

  friend bool operator==(const MatrixForm&, const MatrixForm&) = default;
};

// A weight matrix [n, k]. The tensors it was packed from are not needed any more.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  int64_t n() const { return n_; }  // output columns
  int64_t k() const { return k_; }  // input columns
  bool is_gated() const { return is_gated_; }
  MatrixForm form() const { return {n_, k_, pairs_rows()}; }
  virtual int64_t num_bytes() const = 0;

 protected:
  PackedMatrix(int64_t n, int64_t k, bool is_gated = false) : n_(n), k_(k), is_gated_(is_gated) {}
  virtual bool pairs_rows() const { return is_gated_; }

 private:
  int64_t n_;
  int64_t k_;
  bool is_gated_;
};

// One matrix of each of a layer's experts, all of one shape.
class PackedExperts {
 public:
  explicit PackedExperts(std::vector<std::unique_ptr<PackedMatrix>> experts);
  virtual ~PackedExperts() = default;
  int64_t size() const { return static_cast<int64_t>(experts_.size()); }
  const PackedMatrix& expert(int64_t e) const { return *experts_[static_cast<size_t>(e)]; }

 private:
  std::vector<std::unique_ptr<PackedMatrix>> experts_;
};

}  // namespace tandem
