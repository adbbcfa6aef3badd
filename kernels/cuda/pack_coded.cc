// Packing of matrices that stay codes (coded_layout.h): which do, and their way to the device.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "kernels/all_codes.h"
#include "kernels/blocks/blocks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/float8.h"
#include "kernels/quantization.h"
#include "kernels/stored_blocks.h"

namespace tandem {
namespace {

// A source in codes.
struct CodedForm {
  CodedLayout layout;                 // its num_rows is the source's
  std::optional<BlockFormat> blocks;  // as it is stored; nullopt: codes of other kinds
  std::vector<int32_t> order;         // of columns; empty: as they are
};

// Columns that share a scale, of the sizes that kernels take; 0: too few.
int64_t GroupOf(int64_t group, int64_t columns) {
  if (group == 0 || group >= columns) return (columns + 63) / 64 * 64;
  if (group % 64 == 0) return group;
  return group % kCodedStep == 0 ? std::gcd(group, int64_t{64}) : 0;
}

CodedForm FormOfBlocks(const MatrixSource& source, const BlockFormat& format) {
  CodedForm form = {.layout = {}, .blocks = format, .order = {}};
  CodedLayout& layout = form.layout;
  layout.kind = format.values != nullptr ? CodedKind::kTable
                : format.bits <= 4       ? CodedKind::kNibbles
                                         : CodedKind::kBytes;
  layout.scales = format.scales;
  layout.zero = format.zero;
  layout.block_size = static_cast<int32_t>(format.size);
  layout.group_size = static_cast<int32_t>(format.group_size);
  layout.num_rows = source.rows();
  layout.num_columns = source.columns();
  for (int i = 0; format.values != nullptr && i < 16; ++i) {
    layout.table[i] = static_cast<float>(format.values[i]);
  }
  return form;
}

// Columns sorted by their groups. Empty: groups of different sizes.
std::vector<int32_t> SortedColumns(const MatrixSource& source) {
  const auto* const groups = source.column_groups.Data<int32_t>();
  std::vector<int32_t> order(static_cast<size_t>(source.columns()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::less(), [&](int32_t k) { return groups[k]; });
  const int64_t size = source.columns() / source.num_groups();
  for (int64_t k = 0; k < source.columns(); ++k) {
    if (groups[order[static_cast<size_t>(k)]] != k / size) return {};
  }
  return order;
}

std::optional<CodedForm> FormOfCodes(const MatrixSource& source) {
  const int64_t columns = source.columns();
  if (source.values.dtype != DType::kI8 || source.blocks != nullptr || source.scales.empty() ||
      columns % kCodedStep != 0) {
    return std::nullopt;
  }
  CodedForm form;
  int64_t group = source.group_size;
  if (!source.column_groups.empty()) {
    if (columns % source.num_groups() != 0) return std::nullopt;
    form.order = SortedColumns(source);
    if (form.order.empty()) return std::nullopt;
    group = columns / source.num_groups();
  }
  group = GroupOf(group, columns);
  const bool has_zeros = !source.zeros.empty();
  const auto is_byte = [](float zero) {
    return zero >= -128 && zero <= 127 && zero == std::floor(zero);
  };
  for (int64_t row = 0; has_zeros && row < source.rows(); ++row) {
    const float* const zeros = source.zeros.Row<float>(row);
    if (!std::all_of(zeros, zeros + source.num_groups(), is_byte)) return std::nullopt;
  }
  CodedLayout& layout = form.layout;
  layout.scales = has_zeros ? GroupScales::kFloatZero : GroupScales::kFloat;
  layout.block_size = layout.group_size = static_cast<int32_t>(group);
  layout.num_rows = source.rows();
  layout.num_columns = columns;
  switch (source.code_kind) {
    case CodeKind::kFloat8:
      layout.kind = CodedKind::kFloat8;
      if (group % kFloat8Columns != 0 || has_zeros || !form.order.empty() ||
          !AllCodes(source, [](int8_t c) { return !IsFloat8Nan(static_cast<uint8_t>(c)); })) {
        return std::nullopt;
      }
      break;
    case CodeKind::kTable:
      if (has_zeros) return std::nullopt;
      layout.kind = CodedKind::kTable;
      std::copy_n(source.table, 16, layout.table);
      break;
    case CodeKind::kInteger:
      if (!has_zeros && AllCodes(source, [](int8_t code) { return IndexOfE2m1(code) < 16; })) {
        layout.kind = CodedKind::kTable;
        std::copy_n(kE2m1Values, 16, layout.table);
      } else if (AllCodes(source, [](int8_t code) { return code >= 0 && code < 16; })) {
        layout.kind = CodedKind::kNibbles;
      } else if (AllCodes(source, [](int8_t code) { return code >= -8 && code < 8; })) {
        layout.kind = CodedKind::kNibbles;
        layout.zero = 8;
      } else {
        layout.kind = CodedKind::kBytes;
        layout.zero = 128;
      }
  }
  if (group == 0) return std::nullopt;
  return form;
}

std::optional<CodedForm> FormOf(const MatrixSource& source) {
  if (source.rows() == 0 || source.columns() == 0) return std::nullopt;
  if (source.blocks == nullptr) return FormOfCodes(source);
  const std::optional<BlockFormat> format = FindStoredFormat(source);
  return format ? std::optional(FormOfBlocks(source, *format)) : std::nullopt;
}

// One row's codes, one a byte, and its scales as a tile has them. `scales`: of the tile.
class RowWriter {
 public:
  RowWriter(const MatrixSource& source, const CodedForm& form)
      : source_(source),
        form_(form),
        layout_(form.layout),
        codes_(static_cast<size_t>(form.layout.num_columns)) {}

  void Write(int64_t row, int64_t in_tile, uint8_t* codes, uint8_t* scales) {
    if (form_.blocks) {
      ReadBlocks(row, in_tile, scales);
    } else {
      ReadCodes(row, in_tile, scales);
    }
    switch (layout_.kind) {
      case CodedKind::kFloat8:
        std::copy(codes_.begin(), codes_.end(),
                  codes + in_tile * layout_.num_chunks() * kFloat8Columns);
        return;
      case CodedKind::kBytes:
        return PutBytes(in_tile, codes);
      default:
        return PutNibbles(in_tile, codes);
    }
  }

 private:
  void ReadBlocks(int64_t row, int64_t in_tile, uint8_t* scales) {
    const BlockFormat& format = *form_.blocks;
    for (int64_t block = 0; block < layout_.num_blocks(); ++block) {
      ReadStoredBlock(source_, format, row, block, &parts_);
      std::copy_n(parts_.codes, format.size, codes_.data() + block * format.size);
      const int64_t at = block * kCodedRows + in_tile;
      uint8_t* const numbers = scales + at * layout_.bytes_of_block();
      if (format.scales == GroupScales::kFloat || format.scales == GroupScales::kFloatZero) {
        std::memcpy(numbers, &parts_.float_scale, sizeof parts_.float_scale);
      } else if (layout_.bytes_of_block() > 0) {
        std::memcpy(numbers, &parts_.scale, sizeof parts_.scale);
        if (format.has_offsets()) std::memcpy(numbers + 2, &parts_.offset, sizeof parts_.offset);
      }
      for (int64_t group = 0; group < format.num_groups(); ++group) {
        uint8_t* const bytes = scales + layout_.groups_begin() +
                               ((block * format.num_groups() + group) * kCodedRows + in_tile) *
                                   layout_.bytes_of_group();
        if (format.has_zeros()) {
          *bytes = parts_.group_offsets[group];
          continue;
        }
        if (layout_.bytes_of_group() > 0) bytes[0] = parts_.group_scales[group];
        if (layout_.bytes_of_group() > 1) bytes[1] = parts_.group_offsets[group];
      }
    }
  }

  void ReadCodes(int64_t row, int64_t in_tile, uint8_t* scales) {
    const int8_t* const from = source_.values.Row<int8_t>(row);
    const bool is_e2m1 =
        layout_.kind == CodedKind::kTable && source_.code_kind == CodeKind::kInteger;
    for (size_t k = 0; k < codes_.size(); ++k) {
      const int8_t code = from[form_.order.empty() ? k : static_cast<size_t>(form_.order[k])];
      codes_[k] = is_e2m1                             ? static_cast<uint8_t>(IndexOfE2m1(code))
                  : layout_.kind == CodedKind::kTable ? static_cast<uint8_t>(code & 15)
                                                      : static_cast<uint8_t>(code + layout_.zero);
    }
    for (int64_t group = 0; group < layout_.num_groups(); ++group) {
      const int64_t column = group * layout_.group_size;
      const int64_t stored = !form_.order.empty()
                                 ? column * source_.num_groups() / layout_.num_columns
                             : source_.group_size == 0 ? 0
                                                       : column / source_.group_size;
      const int64_t at = group * kCodedRows + in_tile;
      std::memcpy(scales + at * layout_.bytes_of_block(), &source_.scales.Row<float>(row)[stored],
                  sizeof(float));
      if (source_.zeros.empty()) continue;
      scales[layout_.groups_begin() + at] =
          static_cast<uint8_t>(static_cast<int>(source_.zeros.Row<float>(row)[stored]));
    }
  }

  // As coded_layout.h says where codes lie.
  void PutNibbles(int64_t in_tile, uint8_t* codes) const {
    for (size_t k = 0; k < codes_.size(); ++k) {
      const auto column = static_cast<int64_t>(k);
      const CodedPlace at = layout_.PlaceOf(static_cast<int>(column % 64));
      const int64_t lane = in_tile % 8 * 4 + at.piece;
      const int64_t nibble = at.place / 2 * 2 + in_tile / 8 + 4 * (at.place % 2);
      codes[column / 64 * kCodedBytes + lane * 16 + at.step * 4 + nibble / 2] |=
          static_cast<uint8_t>((codes_[k] & 15) << nibble % 2 * 4);
    }
  }
  void PutBytes(int64_t in_tile, uint8_t* codes) const {
    for (size_t k = 0; k < codes_.size(); ++k) {
      const auto column = static_cast<int64_t>(k);
      const CodedPlace at = layout_.PlaceOf(static_cast<int>(column % 32));
      const int64_t lane = in_tile % 8 * 4 + at.piece;
      const int64_t pair = at.place / 2 * 2 + in_tile / 8;
      codes[column / 32 * kCodedBytes + lane * 16 + at.step * 8 + pair / 2 * 4 + pair % 2 * 2 +
            at.place % 2] = codes_[k];
    }
  }

  const MatrixSource& source_;
  const CodedForm& form_;
  const CodedLayout& layout_;
  std::vector<uint8_t> codes_;
  BlockCodes parts_;
};

// Sources with equal layouts, one below the other.
struct Run {
  CodedLayout layout;
  std::vector<CodedForm> forms;
  std::vector<MatrixSource> sources;
};

bool FitTogether(const CodedForm& a, const CodedForm& b) {
  CodedLayout layout = a.layout;
  layout.num_rows = b.layout.num_rows;
  return layout == b.layout && a.order == b.order;
}

}  // namespace

StatusOr<std::unique_ptr<PackedMatrix>> CudaBackend::PackCoded(
    std::span<const MatrixSource> row_blocks, bool is_gated) {
  std::vector<Run> runs;
  for (const MatrixSource& source : row_blocks) {
    std::optional<CodedForm> form = FormOf(source);
    if (!form) return std::unique_ptr<PackedMatrix>();
    if (runs.empty() || !FitTogether(runs.back().forms[0], *form)) runs.emplace_back();
    runs.back().sources.push_back(source);
    runs.back().forms.push_back(*std::move(form));
  }
  std::vector<CodedPart> parts;
  int64_t num_rows = 0;
  for (const Run& run : runs) {
    CodedPart& part = parts.emplace_back();
    part.layout = run.forms[0].layout;
    part.first_row = num_rows;
    part.layout.num_rows = StackedRows(run.sources).rows();
    num_rows += part.layout.num_rows;
    // Schemes with blocks scale activations by blocks too, also if one is as wide as the matrix.
    part.has_float8_activations = part.layout.kind == CodedKind::kFloat8 &&
                                  std::ranges::all_of(run.sources, [](const MatrixSource& s) {
                                    return s.is_w8a8 && s.group_size == 0;
                                  });
    RETURN_IF_ERROR(FillCodes(run.sources, &part));
  }
  return std::unique_ptr<PackedMatrix>(
      std::make_unique<CudaMatrix>(num_rows, row_blocks[0].columns(), is_gated, std::move(parts)));
}

Status CudaBackend::FillCodes(std::span<const MatrixSource> sources, CodedPart* part) {
  const CodedLayout& layout = part->layout;
  const StackedRows rows(sources);
  std::vector<CodedForm> forms;
  for (const MatrixSource& source : sources) forms.push_back(*FormOf(source));
  const int64_t num_bytes = layout.num_bytes(), code_bytes = layout.code_bytes(),
                scale_bytes = layout.scale_bytes();
  ASSIGN_OR_RETURN(part->memory, AllocateDevice(DType::kI8, {&num_bytes, 1}, device_.stream()));
  if (!forms[0].order.empty()) {
    std::vector<int32_t>& order = forms[0].order;
    ASSIGN_OR_RETURN(part->order, device_.Allocate(DType::kI32, {layout.num_columns}));
    device_.CopyIn(part->order, Tensor(order.data(), DType::kI32, {layout.num_columns}));
  }
  const int64_t at_once = kStagingHalfBytes / (code_bytes + scale_bytes);
  if (at_once == 0) {
    return InvalidArgumentError("a matrix of " + std::to_string(layout.num_columns) +
                                " columns is too wide");
  }
  auto* const memory = static_cast<int8_t*>(part->memory.view().data);
  for (int64_t begin = 0; begin < layout.num_tiles(); begin += at_once) {
    const int64_t count = std::min(at_once, layout.num_tiles() - begin);
    auto* const codes = reinterpret_cast<uint8_t*>(NextStagingHalf());
    uint8_t* const scales = codes + count * code_bytes;
    std::memset(codes, 0, static_cast<size_t>(count * (code_bytes + scale_bytes)));
    ParallelFor(count, 1, [&](int64_t first, int64_t end) {
      for (int64_t n = (begin + first) * kCodedRows;
           n < std::min((begin + end) * kCodedRows, layout.num_rows); ++n) {
        const StackedRows::Row place = rows.Find(n);
        RowWriter writer(*place.block, forms[static_cast<size_t>(place.block - sources.data())]);
        const int64_t tile = n / kCodedRows - begin;
        writer.Write(place.row, n % kCodedRows, codes + tile * code_bytes,
                     scales + tile * scale_bytes);
      }
    });
    const auto copy = [&](int64_t to, uint8_t* from, int64_t bytes) {
      CopyRows(Tensor(memory + to, DType::kI8, {bytes}), Tensor(from, DType::kI8, {bytes}),
               device_.stream());
    };
    copy(begin * code_bytes, codes, count * code_bytes);
    copy(layout.num_tiles() * code_bytes + begin * scale_bytes, scales, count * scale_bytes);
    staging_sent_[staging_half_] = device_.SetMark();
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<PackedMatrix>> CudaBackend::PackQuantized(
    std::span<const MatrixSource> row_blocks, WeightFormat format, bool is_gated) {
  const StackedRows rows(row_blocks);
  const int64_t n = rows.rows(), k = rows.columns();
  if (random_ && k % kCodedStep == 0) return MakeRandomCodes(n, k, format, is_gated);
  const int64_t group = GroupSize(format), num_groups = group == 0 ? 1 : (k + group - 1) / group;
  std::vector<int8_t> codes(static_cast<size_t>(n * k));
  std::vector<float> scales(static_cast<size_t>(n * num_groups)), zeros;
  if (group > 0) zeros.resize(scales.size());
  ParallelFor(n, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(k));
    std::vector<Int4Group> groups(static_cast<size_t>(num_groups));
    for (int64_t i = begin; i < end; ++i) {
      int8_t* const to = codes.data() + i * k;
      if (group == 0) {
        scales[static_cast<size_t>(i)] = ReadInt8(rows, i, row, to);
        continue;
      }
      rows.Read(i, 0, k, DType::kF32, row.data());
      const float scale = QuantizeInt4(row, group, reinterpret_cast<uint8_t*>(to), groups.data());
      for (int64_t g = 0; g < num_groups; ++g) {
        const Int4Group& numbers = groups[static_cast<size_t>(g)];
        scales[static_cast<size_t>(i * num_groups + g)] =
            scale * static_cast<float>(numbers.factor());
        zeros[static_cast<size_t>(i * num_groups + g)] = static_cast<float>(numbers.zero());
      }
    }
  });
  MatrixSource source(Tensor(codes.data(), DType::kI8, {n, k}));
  source.scales = Tensor(scales.data(), DType::kF32, {n, num_groups});
  if (group > 0) source.zeros = Tensor(zeros.data(), DType::kF32, {n, num_groups});
  source.group_size = group;
  ASSIGN_OR_RETURN(std::unique_ptr<PackedMatrix> coded, PackCoded({&source, 1}, is_gated));
  if (coded != nullptr) return coded;
  return PackRows({&source, 1}, WeightFormat::kCompute, is_gated);
}

}  // namespace tandem
