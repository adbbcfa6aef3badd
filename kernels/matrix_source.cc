#include "kernels/matrix_source.h"

#include <algorithm>

#include "common/mapped_file.h"
#include "kernels/float8.h"

namespace tandem {
namespace {

float NumberAt(const void* row, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(row)[i];
    case DType::kBf16:
      return ToFloat(static_cast<const Bf16*>(row)[i]);
    case DType::kF16:
      return HalfToFloat(static_cast<const uint16_t*>(row)[i]);
    case DType::kI8:
      return static_cast<const int8_t*>(row)[i];
    case DType::kI32:
      break;
  }
  CHECK(false) << "weights of " << DTypeName(dtype);
  return 0;
}

}  // namespace

MatrixSource MatrixSource::Rows(int64_t begin, int64_t count) const {
  MatrixSource part = *this;
  part.values = values.Rows(begin, count);
  if (!scales.empty()) part.scales = scales.Rows(begin, count);
  if (!zeros.empty()) part.zeros = zeros.Rows(begin, count);
  return part;
}

MatrixSource MatrixSource::Columns(int64_t begin, int64_t count) const {
  MatrixSource part = *this;
  if (blocks != nullptr) {
    CHECK(begin >= 0 && count >= 0 && begin + count <= num_columns) << begin << "+" << count;
    part.first_column += begin;
    part.num_columns = count;
    return part;
  }
  part.values = values.Columns(begin, count);
  if (!column_groups.empty()) {
    part.column_groups = column_groups.Rows(begin, count);
    return part;
  }
  if (group_size == 0) return part;
  CHECK_EQ(begin % group_size, 0);
  const int64_t first = begin / group_size, end = (begin + count + group_size - 1) / group_size;
  if (!scales.empty()) part.scales = scales.Columns(first, end - first);
  if (!zeros.empty()) part.zeros = zeros.Columns(first, end - first);
  return part;
}

void MatrixSource::GiveBack(int64_t first_row, int64_t count) const {
  if (!is_mapped || count <= 0) return;
  // Linux maps the 64 KiB around a page that is read, so pages of earlier rows have come back.
  constexpr int64_t kMappedAround = 64 << 10;
  const int64_t size = SizeOf(values.dtype), row_bytes = values.row_stride * size;
  const int64_t begin = std::max<int64_t>(0, first_row * row_bytes - kMappedAround);
  const int64_t end = (first_row + count - 1) * row_bytes + values.shape[1] * size;
  ReleaseReadPages(
      {static_cast<const std::byte*>(values.data) + begin, static_cast<size_t>(end - begin)});
}

void MatrixSource::Read(int64_t row, int64_t begin, int64_t count, DType dtype, void* out) const {
  if (scales.empty() && zeros.empty() && values.dtype != DType::kI8) {
    return ConvertTensor(Tensor(out, dtype, {1, count}), values.Rows(row, 1).Columns(begin, count));
  }
  CHECK(dtype == DType::kF32 || dtype == DType::kBf16) << DTypeName(dtype);
  if (blocks != nullptr) return ReadBlocks(row, begin, count, dtype, out);
  ReadCodes(row, begin, count, dtype, out);
}

void MatrixSource::ReadBlocks(int64_t row, int64_t begin, int64_t count, DType dtype,
                              void* out) const {
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.Row<int8_t>(row));
  BlockCodes parts;
  alignas(64) float block[kMaxBlockSize];
  for (int64_t done = 0; done < count;) {
    const int64_t column = first_column + begin + done;
    const int64_t skipped = column % blocks->size;
    const int64_t taken = std::min(blocks->size - skipped, count - done);
    blocks->read(bytes + column / blocks->size * blocks->num_bytes, &parts);
    ReadWeights(*blocks, parts, block);
    ConvertTensor(Tensor(static_cast<std::byte*>(out) + done * SizeOf(dtype), dtype, {1, taken}),
                  Tensor(block + skipped, DType::kF32, {1, taken}));
    done += taken;
  }
}

float MatrixSource::CodeAt(const void* row, int64_t i) const {
  const uint8_t code = static_cast<const uint8_t*>(row)[i];
  switch (code_kind) {
    case CodeKind::kFloat8:
      return Float8ToFloat(code);
    case CodeKind::kTable:
      return table[code & 15];
    case CodeKind::kInteger:
      break;
  }
  return NumberAt(row, values.dtype, i);
}

void MatrixSource::ReadCodes(int64_t row, int64_t begin, int64_t count, DType dtype,
                             void* out) const {
  const void* codes = values.Rows(row, 1).data;
  const float* row_scales = scales.empty() ? nullptr : scales.Row<float>(row);
  const float* row_zeros = zeros.empty() ? nullptr : zeros.Row<float>(row);
  const int32_t* groups = column_groups.empty() ? nullptr : column_groups.Data<int32_t>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t group = groups != nullptr ? groups[begin + i]
                          : group_size == 0 ? 0
                                            : (begin + i) / group_size;
    float weight = CodeAt(codes, begin + i);
    if (row_zeros != nullptr) weight -= row_zeros[group];
    if (row_scales != nullptr) weight *= row_scales[group];
    if (dtype == DType::kF32) {
      static_cast<float*>(out)[i] = weight;
    } else {
      static_cast<Bf16*>(out)[i] = ToBf16(weight);
    }
  }
}

StackedRows::StackedRows(std::span<const MatrixSource> blocks) : blocks_(blocks) {
  CHECK(!blocks.empty());
  for (const MatrixSource& block : blocks) num_rows_ += block.rows();
}

StackedRows::Row StackedRows::Find(int64_t n) const {
  for (const MatrixSource& block : blocks_) {
    if (n < block.rows()) return {&block, n};
    n -= block.rows();
  }
  CHECK(false) << "row " << n << " after the last one";
  return {};
}

void StackedRows::Read(int64_t n, int64_t begin, int64_t count, DType dtype, void* out) const {
  const Row row = Find(n);
  row.block->Read(row.row, begin, count, dtype, out);
}

void StackedRows::GiveBack(int64_t begin, int64_t end) const {
  int64_t first = 0;
  for (const MatrixSource& block : blocks_) {
    const int64_t from = std::max(begin, first), to = std::min(end, first + block.rows());
    block.GiveBack(from - first, to - from);
    first += block.rows();
  }
}

}  // namespace tandem
