#include "kernels/stored_blocks.h"

#include <algorithm>
#include <cmath>

#include "kernels/quantization.h"

namespace tandem {
namespace {

// Columns of a block: as many as share a scale, of the sizes that blocks may have; 0: too few.
int64_t BlockSizeOf(const MatrixSource& codes) {
  const int64_t group = codes.group_size == 0 ? codes.columns() : codes.group_size;
  for (const int64_t size : {int64_t{128}, int64_t{64}, kActivationBlock}) {
    if (group % size == 0 && codes.columns() % size == 0) return size;
  }
  return 0;
}

bool AreSignedBytes(const Tensor& numbers) {
  for (int64_t row = 0; row < numbers.rows(); ++row) {
    const float* const values = numbers.Row<float>(row);
    for (int64_t i = 0; i < numbers.shape[1]; ++i) {
      if (!(values[i] >= -128 && values[i] <= 127 && values[i] == std::floor(values[i]))) {
        return false;
      }
    }
  }
  return true;
}

// The fewest bits that hold all codes, as they are or less their middle.
void ChooseBits(const Tensor& codes, BlockFormat* format) {
  int low = 0, high = 0;
  for (int64_t row = 0; row < codes.rows(); ++row) {
    const int8_t* const values = codes.Row<int8_t>(row);
    const auto [least, most] = std::minmax_element(values, values + codes.shape[1]);
    low = std::min<int>(low, *least);
    high = std::max<int>(high, *most);
  }
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    format->bits = bits;
    format->zero = low < 0 ? 1 << (bits - 1) : 0;
    if (low + format->zero >= 0 && high + format->zero < 1 << bits) return;
  }
}

std::optional<BlockFormat> FormatOfCodes(const MatrixSource& codes) {
  const int64_t size = BlockSizeOf(codes);
  if (!codes.AreIntegers() || codes.scales.empty() || size == 0) return std::nullopt;
  if (!codes.zeros.empty() && !AreSignedBytes(codes.zeros)) return std::nullopt;
  BlockFormat format = {
      .name = "codes",
      .size = size,
      .num_bytes = size,
      .group_size = size,
      .bits = 8,
      .zero = 128,
      .scales = codes.zeros.empty() ? GroupScales::kFloat : GroupScales::kFloatZero,
      .values = nullptr,
      .read = nullptr};
  ChooseBits(codes.values, &format);
  return format;
}

}  // namespace

WeightFormat ResolveFormat(std::span<const MatrixSource> sources, WeightFormat format) {
  if (format != WeightFormat::kStored) return format;
  const auto all_are = [&](auto&& has) { return std::all_of(sources.begin(), sources.end(), has); };
  if (sources[0].columns() <= kMaxQuantizedDepth &&
      all_are([](const MatrixSource& source) { return source.is_w8a8 && source.IsInt8Rows(); })) {
    return WeightFormat::kInt8;
  }
  return all_are([](const MatrixSource& source) { return FindStoredFormat(source).has_value(); })
             ? WeightFormat::kStored
             : WeightFormat::kCompute;
}

std::optional<BlockFormat> FindStoredFormat(const MatrixSource& source) {
  if (source.rows() == 0 || source.columns() == 0) return std::nullopt;
  if (source.blocks == nullptr) return FormatOfCodes(source);
  const int64_t size = source.blocks->size;
  if (source.first_column % size != 0 || source.num_columns % size != 0) return std::nullopt;
  return *source.blocks;
}

double StoredBits(const BlockFormat& format) {
  using enum GroupScales;
  const GroupScales scales = format.scales;
  const bool is_float = scales == kFloat || scales == kFloatZero;
  const int block_bits = is_float ? 32 : scales == kPower ? 0 : format.has_offsets() ? 32 : 16;
  const int group_bits = scales == kIntegerOffset                                         ? 16
                         : scales == kInteger || scales == kPower || scales == kFloatZero ? 8
                                                                                          : 0;
  return format.bits + static_cast<double>(block_bits) / static_cast<double>(format.size) +
         static_cast<double>(group_bits) / static_cast<double>(format.group_size);
}

void ReadStoredBlock(const MatrixSource& source, const BlockFormat& format, int64_t row,
                     int64_t block, BlockCodes* parts) {
  if (source.blocks != nullptr) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(source.values.Row<int8_t>(row));
    return format.read(bytes + (source.first_column / format.size + block) * format.num_bytes,
                       parts);
  }
  const int8_t* const codes = source.values.Row<int8_t>(row) + block * format.size;
  for (int64_t i = 0; i < format.size; ++i) {
    parts->codes[i] = static_cast<uint8_t>(codes[i] + format.zero);
  }
  const int64_t group = source.group_size == 0 ? 0 : block * format.size / source.group_size;
  parts->float_scale = source.scales.Row<float>(row)[group];
  if (format.has_zeros()) {
    parts->group_offsets[0] =
        static_cast<uint8_t>(static_cast<int>(source.zeros.Row<float>(row)[group]));
  }
}

}  // namespace tandem
