// Packing of matrices that stay codes (coded_panel.h), and their rows as an embedding.

#include <algorithm>
#include <cstring>

#include "kernels/all_codes.h"
#include "kernels/blocks/blocks.h"
#include "kernels/cpu/cpu_matrix.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/float8.h"
#include "kernels/host_memory.h"

namespace tandem {
namespace {

constexpr int kTableSize = 16;
// Twice the numbers of e2m1, as sources have them.
constexpr float kTwiceE2m1[kTableSize] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

bool SameBytes(const void* a, const void* b, int64_t size) {
  return std::memcmp(a, b, static_cast<size_t>(size)) == 0;
}

bool HaveEqualGroups(const MatrixSource& a, const MatrixSource& b) {
  if (a.column_groups.empty() != b.column_groups.empty()) return false;
  if (a.column_groups.empty()) return a.group_size == b.group_size;
  return a.num_groups() == b.num_groups() &&
         SameBytes(a.column_groups.data, b.column_groups.data, a.column_groups.NumBytes());
}

bool FitTogether(const MatrixSource& a, const MatrixSource& b) {
  return a.code_kind == b.code_kind && a.zeros.empty() == b.zeros.empty() &&
         HaveEqualGroups(a, b) &&
         (a.code_kind != CodeKind::kTable || SameBytes(a.table, b.table, kTableSize * 4));
}

// How the codes are kept: integers in 4 bits where all sources' are small, or are those of e2m1.
struct CodeForm {
  CodedShape shape;
  bool is_e2m1 = false;
};

std::optional<CodeForm> FindCodeForm(std::span<const MatrixSource> sources) {
  const MatrixSource& first = sources[0];
  for (const MatrixSource& source : sources) {
    if (source.rows() == 0 || source.values.dtype != DType::kI8 || source.blocks != nullptr ||
        source.scales.empty() || !FitTogether(first, source)) {
      return std::nullopt;
    }
  }
  const auto all = [&](auto fits) {
    return std::all_of(sources.begin(), sources.end(),
                       [&](const MatrixSource& source) { return AllCodes(source, fits); });
  };
  CodeForm form = {.shape = {.kind = first.code_kind,
                             .bits = 8,
                             .has_zeros = !first.zeros.empty(),
                             .num_groups = first.num_groups(),
                             .k = first.columns()}};
  switch (first.code_kind) {
    case CodeKind::kFloat8:  // the products' arithmetic knows no NaN among the codes
      if (!all([](int8_t code) { return !IsFloat8Nan(static_cast<uint8_t>(code)); })) {
        return std::nullopt;
      }
      break;
    case CodeKind::kTable:
      form.shape.bits = 4;
      break;
    case CodeKind::kInteger:
      if (all([](int8_t code) { return code >= 0 && code < kTableSize; })) {
        form.shape.bits = 4;
      } else if (all([](int8_t code) { return IndexOfE2m1(code) < kTableSize; })) {
        form.shape.bits = 4;
        form.shape.kind = CodeKind::kTable;
        form.is_e2m1 = true;
      }
  }
  return form;
}

// Fills one (zeroed) panel.
void PackPanel(const StackedRows& rows, const CodeForm& form, int64_t panel, bool is_gated,
               uint8_t* to) {
  const CodedShape& shape = form.shape;
  auto* const scales = reinterpret_cast<float*>(to);
  float* const zeros = scales + shape.num_groups * kPanelColumns;
  uint8_t* const codes = to + shape.CodesBegin();
  for (int64_t c = 0; c < kPanelColumns; ++c) {
    const int64_t n = RowOfColumn(panel, c, rows.rows(), is_gated);
    if (n < 0) continue;
    const StackedRows::Row place = rows.Find(n);
    const MatrixSource& source = *place.block;
    for (int64_t group = 0; group < shape.num_groups; ++group) {
      scales[group * kPanelColumns + c] = source.scales.Row<float>(place.row)[group];
      if (shape.has_zeros) {
        zeros[group * kPanelColumns + c] = source.zeros.Row<float>(place.row)[group];
      }
    }
    const int8_t* const from = source.values.Row<int8_t>(place.row);
    for (int64_t k = 0; k < shape.k; ++k) {
      const int code = form.is_e2m1 ? IndexOfE2m1(from[k]) : static_cast<uint8_t>(from[k]);
      if (shape.bits == 8) {
        codes[k * kPanelColumns + c] = static_cast<uint8_t>(code);
      } else {
        codes[k / 2 * kPanelColumns + c] |= static_cast<uint8_t>((code & 15) << (k % 2 * 4));
      }
    }
  }
}

void FillPrefix(const MatrixSource& source, const CodeForm& form, uint8_t* memory) {
  auto* const groups = reinterpret_cast<int32_t*>(memory);
  for (int64_t k = 0; k < form.shape.k; ++k) {
    groups[k] = !source.column_groups.empty() ? source.column_groups.Data<int32_t>()[k]
                : source.group_size == 0      ? 0
                                              : static_cast<int32_t>(k / source.group_size);
  }
  const float* const table = form.is_e2m1 ? kTwiceE2m1 : source.table;
  if (form.shape.kind == CodeKind::kTable) {
    std::memcpy(memory + form.shape.PrefixBytes() - 64, table, kTableSize * sizeof(float));
  }
}

}  // namespace

CodedPanels::CodedPanels(const CodedShape& coded_shape, OwnedTensor bytes)
    : shape(coded_shape), memory(std::move(bytes)) {}

CodedTask CodedPanels::Panel(int64_t panel) const {
  const auto* const begin = static_cast<const uint8_t*>(memory.view().data);
  return {.shape = &shape,
          .groups = reinterpret_cast<const int32_t*>(begin),
          .table = reinterpret_cast<const float*>(begin + shape.PrefixBytes() - 64),
          .panel = begin + shape.PrefixBytes() + panel * shape.PanelBytes()};
}

float CodedPanels::Weight(int64_t n, int64_t k) const {
  const CodedTask task = Panel(n / kPanelColumns);
  const int64_t lane = n % kPanelColumns;
  const auto* const scales = reinterpret_cast<const float*>(task.panel);
  const int64_t group = task.groups[k] * kPanelColumns + lane;
  const uint8_t* const codes = task.panel + shape.CodesBegin();
  const uint8_t code = shape.bits == 8 ? codes[k * kPanelColumns + lane]
                                       : codes[k / 2 * kPanelColumns + lane] >> (k % 2 * 4) & 15;
  float number = shape.kind == CodeKind::kFloat8  ? Float8ToFloat(code)
                 : shape.kind == CodeKind::kTable ? task.table[code]
                 : shape.bits == 4                ? static_cast<float>(code)
                                                  : static_cast<float>(static_cast<int8_t>(code));
  if (shape.has_zeros) number -= scales[shape.num_groups * kPanelColumns + group];
  return number * scales[group];
}

StatusOr<std::unique_ptr<PackedMatrix>> PackCoded(std::span<const MatrixSource> row_blocks,
                                                  DType dtype, bool is_gated, ComputePool* pool) {
  const std::optional<CodeForm> found = FindCodeForm(row_blocks);
  if (!found) return std::unique_ptr<PackedMatrix>();
  const CodeForm& form = *found;
  const StackedRows rows(row_blocks);
  const int64_t num_panels = CpuMatrix::NumPanels(rows.rows(), is_gated);
  const int64_t num_bytes = form.shape.PrefixBytes() + num_panels * form.shape.PanelBytes();
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateHost(DType::kI8, {&num_bytes, 1}));
  auto* const begin = static_cast<uint8_t*>(memory.view().data);
  FillPrefix(row_blocks[0], form, begin);
  pool->Run(num_panels, 1, [&](int64_t first, int64_t end, int) {
    for (int64_t panel = first; panel < end; ++panel) {
      PackPanel(rows, form, panel, is_gated,
                begin + form.shape.PrefixBytes() + panel * form.shape.PanelBytes());
    }
  });
  return std::unique_ptr<PackedMatrix>(std::make_unique<CpuMatrix>(
      rows.rows(), is_gated, dtype, CodedPanels(form.shape, std::move(memory))));
}

void CpuOps::CodedEmbedding(const Tensor& out, const Tensor& ids, const CpuMatrix& table,
                            float scale) {
  ForEach(ids.rows(), table.k(), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t id = ids.Data<int32_t>()[t];
      CHECK(id >= 0 && id < table.n()) << id << " of " << table.n();
      float* const row = out.Row<float>(t);
      for (int64_t h = 0; h < table.k(); ++h) {
        const float weight = table.coded()->Weight(id, h);
        row[h] = (dtype_ == DType::kBf16 ? ToFloat(ToBf16(weight)) : weight) * scale;
      }
    }
  });
}

}  // namespace tandem
