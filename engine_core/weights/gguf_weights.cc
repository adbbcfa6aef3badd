#include "engine_core/weights/gguf_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/shape_text.h"
#include "engine_core/weights/gguf_architectures.h"
#include "engine_core/weights/number_type.h"
#include "kernels/block_format.h"

namespace tandem {
namespace {

// Rows in HF's order, from pairs that RoPE turns together: the first halves of all pairs of a head,
// then the second ones.
std::vector<std::byte> Unpaired(std::span<const std::byte> bytes, int64_t num_rows,
                                int64_t head_dim) {
  const size_t row_bytes = bytes.size() / static_cast<size_t>(num_rows);
  std::vector<std::byte> rows(bytes.size());
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t head = row / head_dim, r = row % head_dim, half = head_dim / 2;
    const int64_t stored = head * head_dim + 2 * (r % half) + r / half;
    std::memcpy(rows.data() + static_cast<size_t>(row) * row_bytes,
                bytes.data() + static_cast<size_t>(stored) * row_bytes, row_bytes);
  }
  return rows;
}

// A tensor, or one expert's matrix of a stack. Borrows the file.
struct Part {
  const GgufTensor* tensor = nullptr;
  GgufTensorPlace place;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;

  int64_t num_elements() const {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  }
};

class GgufWeights final : public Weights {
 public:
  GgufWeights(std::unique_ptr<GgufFile> file, const GgufArchitecture* architecture,
              int64_t head_dim)
      : file_(std::move(file)), architecture_(architecture), head_dim_(head_dim) {}

  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    ASSIGN_OR_RETURN(const Part part, FindPart(name));
    read_.insert(part.place.name);
    const std::vector<int64_t> shape =
        rows == 0 ? std::vector<int64_t>{columns} : std::vector<int64_t>{rows, columns};
    // A vector may be stored as a column, or cut into groups; one row may be stored as a vector.
    if (part.shape != shape && !(rows <= 1 && part.num_elements() == columns)) {
      return InvalidArgumentError(Where(part) + " has shape " + ShapeText(part.shape) +
                                  ", the config needs " + ShapeText(shape));
    }
    ASSIGN_OR_RETURN(const DType dtype, NumbersOf(part));
    const Tensor view =
        rows == 0 ? Tensor(nullptr, dtype, {columns}) : Tensor(nullptr, dtype, {rows, columns});
    if (part.place.is_decay) {
      // Rounded from a double, so that the bits do not depend on the libm.
      return Changed(part, view, [](float number) {
        return static_cast<float>(std::log(-static_cast<double>(number)));
      });
    }
    if (const float offset = architecture_->norm_offset; part.place.is_norm && offset != 0) {
      return Changed(part, view, [&](float number) { return number - offset; });
    }
    ASSIGN_OR_RETURN(std::vector<std::byte> memory, ReorderedRows(part));
    if (!memory.empty()) return WeightTensor(view, std::move(memory));
    return InPlace(view, part.bytes);
  }

  // Of a convolution, whose channels are rows. HF's stacks of experts are in no GGUF file.
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t count,
                                      int64_t rows, int64_t columns) override {
    ASSIGN_OR_RETURN(const Part part, FindPart(name));
    read_.insert(part.place.name);
    if (rows != 1 || part.shape != std::vector<int64_t>{count, columns}) {
      return InvalidArgumentError(Where(part) + " has shape " + ShapeText(part.shape) +
                                  ", the config needs " +
                                  ShapeText(std::vector<int64_t>{count, columns}));
    }
    ASSIGN_OR_RETURN(const DType dtype, NumbersOf(part));
    const size_t size = part.bytes.size() / static_cast<size_t>(count);
    return InPlace(Tensor(nullptr, dtype, {1, columns}),
                   part.bytes.subspan(static_cast<size_t>(index) * size, size));
  }

  StatusOr<StoredTensor> GetStored(std::string_view name) override {
    ASSIGN_OR_RETURN(const Part part, FindPart(name));
    read_.insert(part.place.name);
    const std::string type(part.tensor->type->name);
    ASSIGN_OR_RETURN(std::vector<std::byte> memory, ReorderedRows(part));
    if (memory.empty()) return StoredTensor(type, part.shape, part.bytes);
    return StoredTensor(type, part.shape, std::move(memory));
  }

  bool Has(std::string_view name) const override { return FindPart(name).ok(); }

  std::string PlaceOf(std::string_view name) const override {
    const auto place = FindGgufPlace(*architecture_, name);
    return file_->path() + ": tensor " + (place ? place->name : std::string(name));
  }

  std::vector<std::string> Unread() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : file_->tensors()) {
      if (read_.count(name) == 0) names.push_back(name);
    }
    return names;
  }

 private:
  Status Missing(std::string_view name) const {
    return NotFoundError(file_->path() + ": tensor " + std::string(name) + " is missing");
  }
  std::string Where(const Part& part) const {
    return file_->path() + ": tensor " + part.place.name;
  }

  StatusOr<Part> FindPart(std::string_view name) const {
    const auto place = FindGgufPlace(*architecture_, name);
    if (!place) return Missing(name);
    Part part;
    part.place = *place;
    part.tensor = file_->Find(place->name);
    if (part.tensor == nullptr) return Missing(place->name);
    part.shape = part.tensor->shape;
    part.bytes = part.tensor->bytes;
    if (!place->index) return part;
    if (part.shape.size() != 3 || *place->index >= part.shape[0]) {
      return InvalidArgumentError(Where(part) + " has shape " + ShapeText(part.shape) +
                                  ", which has no matrix " + std::to_string(*place->index));
    }
    const size_t size = part.bytes.size() / static_cast<size_t>(part.shape[0]);
    part.bytes = part.bytes.subspan(static_cast<size_t>(*place->index) * size, size);
    part.shape.erase(part.shape.begin());
    if (place->half < 0) return part;
    if (part.shape[0] % 2 != 0) {
      return InvalidArgumentError(Where(part) + " has " + std::to_string(part.shape[0]) +
                                  " rows, must be an even number");
    }
    part.shape[0] /= 2;
    part.bytes = part.bytes.subspan(static_cast<size_t>(place->half) * (size / 2), size / 2);
    return part;
  }

  StatusOr<DType> NumbersOf(const Part& part) const {
    if (const auto dtype = NumberTypeOf(part.tensor->type->name)) return *dtype;
    return InvalidArgumentError(Where(part) + " has type " + std::string(part.tensor->type->name) +
                                ", must be F32, F16 or BF16");
  }

  static WeightTensor InPlace(const Tensor& view, std::span<const std::byte> bytes) {
    if (reinterpret_cast<uintptr_t>(bytes.data()) % static_cast<size_t>(SizeOf(view.dtype)) != 0) {
      return WeightTensor(view, {bytes.begin(), bytes.end()});
    }
    Tensor mapped = view;
    mapped.data = const_cast<std::byte*>(bytes.data());  // a view that is only read
    return WeightTensor(mapped);
  }

  // Empty where the file has HF's order.
  StatusOr<std::vector<std::byte>> ReorderedRows(const Part& part) const {
    if (!part.place.is_paired) return std::vector<std::byte>();
    const int64_t num_rows = part.shape[0];
    if (num_rows % head_dim_ != 0) {
      return InvalidArgumentError(Where(part) + " has " + std::to_string(num_rows) +
                                  " rows, must be a multiple of the head's " +
                                  std::to_string(head_dim_));
    }
    return Unpaired(part.bytes, num_rows, head_dim_);
  }

  // Each number as HF has it.
  template <class Function>
  StatusOr<WeightTensor> Changed(const Part& part, const Tensor& view, Function f) const {
    if (view.dtype != DType::kF32) {
      return InvalidArgumentError(Where(part) + " has type " +
                                  std::string(part.tensor->type->name) + ", must be F32");
    }
    std::vector<std::byte> memory(part.bytes.begin(), part.bytes.end());
    auto* const numbers = reinterpret_cast<float*>(memory.data());
    for (int64_t i = 0; i < view.NumElements(); ++i) numbers[i] = f(numbers[i]);
    return WeightTensor(view, std::move(memory));
  }

  std::unique_ptr<GgufFile> file_;
  const GgufArchitecture* architecture_;
  int64_t head_dim_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace

StatusOr<std::unique_ptr<Weights>> OpenGguf(std::unique_ptr<GgufFile> file,
                                            const ModelConfig& config) {
  ASSIGN_OR_RETURN(const GgufArchitecture* architecture, FindGgufArchitecture(file->metadata()));
  for (const auto& [name, tensor] : file->tensors()) {
    if (NumberTypeOf(tensor.type->name) || FindBlockFormat(tensor.type->name) != nullptr) continue;
    return UnimplementedError(
        file->path() + ": tensor " + name + " has type " + std::string(tensor.type->name) +
        ", which is not supported; supported: F32, F16, BF16, " + BlockFormatNames());
  }
  return std::unique_ptr<Weights>(
      std::make_unique<GgufWeights>(std::move(file), architecture, config.head_dim));
}

}  // namespace tandem
