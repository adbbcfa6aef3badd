#pragma once

// Named tensors of a model: from safetensors files (mapped, never copied when aligned), made up
// (dummy_weights.h), or from a GGUF file (gguf_weights.h). The file format of safetensors: 8
// bytes little-endian header length, a JSON object of {name: {dtype, shape, data_offsets}}, then
// the data. Thread: one loader at a time. Ownership: a WeightTensor's bytes stay valid while it and
// the Weights it came from live; destroying it gives the pages it touched back to the kernel, so
// that packing a model does not keep both copies resident. Failure: every length, offset, shape and
// dtype is checked before use; the Status names the file and the tensor. Files must not be
// truncated by others while they are mapped (SIGBUS).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
  bool is_mapped() const { return is_mapped_; }

 private:
  std::vector<std::byte> memory_;
  Tensor view_;
  bool is_mapped_ = false;
};

// A tensor as the file has it, of any of the file's types: what a quantized matrix is made of.
// Movable; the bytes are not aligned. Gives its pages back as a WeightTensor does.
class StoredTensor {
 public:
  // bytes: in a mapping.
  StoredTensor(std::string dtype, std::vector<int64_t> shape, std::span<const std::byte> bytes)
      : dtype_(std::move(dtype)), shape_(std::move(shape)), bytes_(bytes) {}
  // A copy, where a file has the rows in another order.
  StoredTensor(std::string dtype, std::vector<int64_t> shape, std::vector<std::byte> memory)
      : dtype_(std::move(dtype)),
        shape_(std::move(shape)),
        memory_(std::move(memory)),
        bytes_(memory_) {}
  StoredTensor(StoredTensor&& other) noexcept;
  StoredTensor& operator=(StoredTensor&&) = delete;
  ~StoredTensor();

  const std::string& dtype() const { return dtype_; }  // "I32", "F8_E4M3"
  const std::vector<int64_t>& shape() const { return shape_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  bool is_mapped() const { return memory_.empty(); }
  int64_t num_elements() const;

 private:
  std::string dtype_;
  std::vector<int64_t> shape_;
  std::vector<std::byte> memory_;
  std::span<const std::byte> bytes_;
};

// Whether FloatsOf reads this type: F32, F16, BF16 or F8_E4M3.
bool IsFloat(std::string_view dtype);
// The numbers of a tensor. REQUIRES: IsFloat.
std::vector<float> FloatsOf(const StoredTensor& tensor);

class PackedFile;
class PackedFileWriter;

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
  // A tensor of any type and shape. NotFound when the name is unknown, and from weights that are
  // not files.
  virtual StatusOr<StoredTensor> GetStored(std::string_view name);
  // For checkpoints that are written in several ways.
  virtual bool Has(std::string_view name) const = 0;
  // How a message names a tensor, with its file where there is one.
  virtual std::string PlaceOf(std::string_view name) const { return "tensor " + std::string(name); }
  // The file's own names of tensors that nobody has asked for, in order; none of weights that are
  // not files.
  virtual std::vector<std::string> Unread() const { return {}; }
  // Not null where matrices and vectors are packed already: they are all there is (packed_file.h).
  virtual PackedFile* packed() { return nullptr; }
  // Not null where the loader is to write what it packs (packed_file_writer.h).
  virtual PackedFileWriter* writer() { return nullptr; }
};

// Opens the shards that model.safetensors.index.json names, or model.safetensors, or what else is
// the checkpoint of the folder (safetensors_files.h).
StatusOr<std::unique_ptr<Weights>> OpenSafetensors(const std::string& model_dir);

}  // namespace tandem
