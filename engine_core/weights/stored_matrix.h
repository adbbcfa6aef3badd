#pragma once

// One matrix of a checkpoint, or a part of it, as a source for Backend::Pack: what stands between
// the tensors of a file and the matrices of a model. A matrix is stored as numbers, in blocks
// (kernels/block_format.h), or in one of the layouts of quantized checkpoints
// (quantized/layouts.h). Thread: one loader at a time.
// Ownership: a LoadedMatrix keeps its source's memory (pages of the mapped file, or a copy) and
// gives it back when it is destroyed, which is once it is packed. Failure: as Weights::Get.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "common/status.h"
#include "engine_core/weights/checkpoint_quantization.h"
#include "engine_core/weights/decoded_matrix.h"
#include "engine_core/weights/safetensors.h"
#include "kernels/matrix_source.h"
#include "kernels/slice.h"

namespace tandem {

struct StoredMatrix {
  std::string name;  // without ".weight"; of a stack the whole name
  int64_t rows = 0;  // of the whole matrix
  int64_t columns = 0;
  // The part to load; empty: all. The rows are begin, begin + row_step, ...; `count` of them.
  std::optional<Slice> row_slice = {};
  int64_t row_step = 1;
  std::optional<Slice> column_slice = {};
  bool is_transposed = false;  // stored as [columns, rows]
  // Where many matrices are one tensor [stack_size, rows, columns]: the index of this one.
  int64_t stack_idx = 0;
  int64_t stack_size = 0;  // 0: not in a stack

  Slice rows_to_load() const { return row_slice.value_or(Slice{0, rows}); }
  Slice columns_to_load() const { return column_slice.value_or(Slice{0, columns}); }
};

class LoadedMatrix {
 public:
  LoadedMatrix(WeightTensor tensor, const MatrixSource& source)
      : tensor_(std::move(tensor)), source_(source) {}
  LoadedMatrix(DecodedMatrix codes, const MatrixSource& source)
      : tensor_(std::move(codes)), source_(source) {}
  LoadedMatrix(StoredTensor blocks, const MatrixSource& source)
      : tensor_(std::move(blocks)), source_(source) {}
  const MatrixSource& source() const { return source_; }

 private:
  std::variant<WeightTensor, DecodedMatrix, StoredTensor> tensor_;
  MatrixSource source_;
};

StatusOr<LoadedMatrix> LoadMatrix(Weights& weights, const CheckpointQuantization& quantization,
                                  const StoredMatrix& stored);

}  // namespace tandem
