#pragma once

// Named tensors of a model: from safetensors files (mapped, never copied when aligned) or made up
// (`--load-format dummy`). The file format: 8 bytes little-endian header length, a JSON object of
// {name: {dtype, shape, data_offsets}}, then the data.
// Thread: one loader at a time. Ownership: a WeightTensor's bytes stay valid while it and the
// Weights it came from live; destroying it gives the pages it touched back to the kernel, so that
// packing a model does not keep both copies resident.
// Failure: every length, offset, shape and dtype is checked before use; the Status names the file
// and the tensor. Files must not be truncated by others while they are mapped (SIGBUS).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "kernels/tensor.h"

namespace tandem {

// One tensor in host memory: kF32, kF16 or kBf16, row-major, aligned to its element size. Movable.
class WeightTensor {
 public:
  // `view` borrows pages of a mapping; they are released when this is destroyed.
  explicit WeightTensor(const Tensor& view) : view_(view), is_mapped_(true) {}
  // `view` without its data, which `memory` holds.
  WeightTensor(const Tensor& view, std::vector<std::byte> memory);
  WeightTensor(WeightTensor&& other) noexcept;
  WeightTensor& operator=(WeightTensor&&) = delete;
  ~WeightTensor();

  const Tensor& view() const { return view_; }

 private:
  std::vector<std::byte> memory_;
  Tensor view_;
  bool is_mapped_ = false;
};

// Where a model's loader finds its tensors.
class Weights {
 public:
  virtual ~Weights() = default;
  // A matrix [rows, columns]; or a vector [columns] with rows 0. NotFound when the name is unknown,
  // InvalidArgument when its shape differs or its dtype is another one.
  virtual StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) = 0;
  // Matrix `index` of a stack [count, rows, columns]. The same failures.
  virtual StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t count,
                                              int64_t rows, int64_t columns) = 0;
  // For checkpoints that are written in several ways.
  virtual bool Has(std::string_view name) const = 0;
};

// Opens model.safetensors, or the shards that model.safetensors.index.json names.
StatusOr<std::unique_ptr<Weights>> OpenSafetensors(const std::string& model_dir);

// Any name and shape, in bf16: values that depend only on (seed, name, index), small enough to keep
// the activations of a deep model finite; vectors are near 1, as norms are.
std::unique_ptr<Weights> MakeDummyWeights(uint64_t seed);

}  // namespace tandem
