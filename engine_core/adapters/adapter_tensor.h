#pragma once

// A matrix of an adapter's file. Thread: any one. Owns its numbers where they are not aligned in
// the file's bytes, are float64 there or were made of others; else borrows these. Failure: a type
// or a shape that no pair has.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "engine_core/weights/safetensors_header.h"
#include "kernels/tensor.h"

namespace tandem {

class AdapterTensor {
 public:
  AdapterTensor(AdapterTensor&&) = default;
  AdapterTensor& operator=(AdapterTensor&&) = default;
  static StatusOr<AdapterTensor> Open(const std::string& name, const SafetensorsEntry& entry,
                                      std::span<const std::byte> bytes);
  // Zeros of its own, to be written.
  static AdapterTensor Make(DType dtype, int64_t rows, int64_t columns);

  const Tensor& view() const { return view_; }

 private:
  AdapterTensor() = default;

  std::vector<std::byte> copy_;
  Tensor view_;
};

}  // namespace tandem
