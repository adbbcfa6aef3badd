#include "engine_core/models/load_packed.h"

#include <algorithm>
#include <vector>

#include "engine_core/weights/packed_file_writer.h"

namespace tandem {

StatusOr<std::unique_ptr<PackedMatrix>> LoadPacked(
    const LoadContext& context, const PackedFile::Wanted& wanted,
    const std::function<StatusOr<std::unique_ptr<PackedMatrix>>()>& pack) {
  if (const PackedFile* const file = context.weights.packed()) {
    return file->Matrix(wanted, context.backend.activation_dtype());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<PackedMatrix> matrix, pack());
  if (PackedFileWriter* const writer = context.weights.writer()) {
    RETURN_IF_ERROR(writer->AddMatrix(wanted.name, *matrix));
  }
  return matrix;
}

StatusOr<OwnedTensor> LoadNumbers(const LoadContext& context, const std::string& name, int64_t rows,
                                  int64_t columns, const std::function<Status(float*)>& read) {
  const int64_t size = std::max<int64_t>(1, rows) * columns;
  const auto upload = [&](float* numbers) {
    const Tensor view = rows > 0 ? Tensor(numbers, DType::kF32, {rows, columns})
                                 : Tensor(numbers, DType::kF32, {columns});
    return context.backend.device().Upload(view, DType::kF32);
  };
  if (const PackedFile* const file = context.weights.packed()) {
    ASSIGN_OR_RETURN(const Tensor numbers, file->Vector(name, size));
    return upload(numbers.Data<float>());
  }
  std::vector<float> numbers(static_cast<size_t>(size));
  RETURN_IF_ERROR(read(numbers.data()));
  if (PackedFileWriter* const writer = context.weights.writer()) {
    RETURN_IF_ERROR(writer->AddVector(name, Tensor(numbers.data(), DType::kF32, {size})));
  }
  return upload(numbers.data());
}

}  // namespace tandem
