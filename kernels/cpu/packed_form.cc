#include "kernels/packed_form.h"

#include <string>
#include <utility>

#include "kernels/cpu/cpu_matrix.h"
#include "kernels/cpu/quantized_panel.h"

namespace tandem {
namespace {

// Far above any model's, and low enough that no product of sizes overflows.
constexpr int64_t kMostRows = int64_t{1} << 28;

int64_t NumPanelsOf(int64_t rows) { return (rows + kPanelColumns - 1) / kPanelColumns; }

bool HasRowScales(WeightFormat format) {
  return format != WeightFormat::kCompute && format != WeightFormat::kStored;
}

int64_t ComputeUnits(const PackedForm& form) {
  return form.dtype == DType::kBf16 ? (form.k + 1) / 2 : form.k;
}

StatusOr<CodedShape> ShapeOfCodes(const PackedForm& form) {
  const PackedForm::Codes& codes = *form.codes;
  const bool is_width = codes.kind == CodeKind::kFloat8  ? codes.bits == 8
                        : codes.kind == CodeKind::kTable ? codes.bits == 4
                                                         : codes.bits == 4 || codes.bits == 8;
  if (!is_width || codes.num_groups < 1 || codes.num_groups > form.k) {
    return InvalidArgumentError("codes of " + std::to_string(codes.bits) + " bits in " +
                                std::to_string(codes.num_groups) + " groups");
  }
  return CodedShape{.kind = codes.kind,
                    .bits = codes.bits,
                    .has_zeros = codes.has_zeros,
                    .num_groups = codes.num_groups,
                    .k = form.k};
}

// Each column's group is one of them.
Status CheckGroups(const CodedShape& shape, std::span<const std::byte> bytes) {
  const auto* const groups = reinterpret_cast<const int32_t*>(bytes.data());
  for (int64_t k = 0; k < shape.k; ++k) {
    if (groups[k] < 0 || groups[k] >= shape.num_groups) {
      return DataLossError("column " + std::to_string(k) + " has group " +
                           std::to_string(groups[k]) + " of " + std::to_string(shape.num_groups));
    }
  }
  return OkStatus();
}

Status CheckSources(const PackedForm& form) {
  int64_t rows = 0;
  for (const PackedForm::Source& source : form.sources) {
    if (source.rows < 1 || source.rows > form.n || form.k % source.blocks.size != 0) {
      return InvalidArgumentError("a part of " + std::to_string(source.rows) + " rows of " +
                                  std::to_string(form.k) + " in blocks of " +
                                  std::to_string(source.blocks.size));
    }
    rows += source.rows;
    if (rows > form.n) break;
  }
  if (rows == form.n) return OkStatus();
  return InvalidArgumentError("its parts do not have " + std::to_string(form.n) + " rows");
}

// Owned by what maps the file.
OwnedTensor Borrowed(std::span<const std::byte> bytes, DType dtype,
                     const std::shared_ptr<const void>& owner) {
  void* const data = const_cast<std::byte*>(bytes.data());  // only read
  const auto count = static_cast<int64_t>(bytes.size()) / SizeOf(dtype);
  return {OwnedTensor::Memory(data, [owner](void*) {}), Tensor(data, dtype, {count})};
}

BlockPanels PanelsOf(const PackedForm& form, OwnedTensor memory) {
  BlockPanels packed;
  packed.memory = std::move(memory);
  for (const PackedForm::Source& source : form.sources) packed.shapes.emplace_back(source.blocks);
  const auto* bytes = static_cast<const uint8_t*>(packed.memory.view().data);
  int64_t column = 0;
  for (size_t i = 0; i < form.sources.size(); ++i) {
    const int64_t rows = form.sources[i].rows;
    for (int64_t first = 0; first < rows; first += kPanelColumns) {
      const int64_t count = std::min<int64_t>(kPanelColumns, rows - first);
      packed.panels.push_back({&packed.shapes[i], bytes, column, count});
      column += count;
      bytes += packed.shapes[i].PanelBytes(form.k);
    }
  }
  return packed;
}

}  // namespace

std::string_view PanelKind() {
#if defined(__x86_64__)
  return "x86_64 panels 1";
#elif defined(__aarch64__)
  return "aarch64 panels 1";
#else
  return "other panels 1";
#endif
}

PackedForm FormOf(const PackedMatrix& matrix, DType dtype, PackedBytes* bytes) {
  const auto& cpu = static_cast<const CpuMatrix&>(matrix);
  PackedForm form = {.n = cpu.n(),
                     .k = cpu.k(),
                     .is_gated = cpu.is_gated(),
                     .format = cpu.format(),
                     .dtype = dtype};
  const auto view = [](const void* data, int64_t size) {
    return std::span(static_cast<const std::byte*>(data), static_cast<size_t>(size));
  };
  if (const BlockPanels* const blocks = cpu.blocks()) {
    // The panels of a source share its shape.
    const BlockPanelShape* last = nullptr;
    for (const BlockPanel& panel : blocks->panels) {
      if (panel.shape != last) form.sources.push_back({0, panel.shape->format});
      last = panel.shape;
      form.sources.back().rows += panel.num_columns;
    }
    *bytes = {view(blocks->memory.view().data, blocks->memory.view().NumBytes()), {}};
    return form;
  }
  if (const CodedPanels* const coded = cpu.coded()) {
    const CodedShape& shape = coded->shape;
    form.codes = PackedForm::Codes{.kind = shape.kind,
                                   .bits = shape.bits,
                                   .has_zeros = shape.has_zeros,
                                   .num_groups = shape.num_groups};
    *bytes = {view(coded->memory.view().data, coded->memory.view().NumBytes()), {}};
    return form;
  }
  const int64_t scale_bytes = HasRowScales(form.format) ? form.n * SizeOf(DType::kF32) : 0;
  *bytes = {view(cpu.units(), cpu.num_bytes() - scale_bytes), {}};
  if (scale_bytes > 0) bytes->scales = view(cpu.scales(), scale_bytes);
  return form;
}

StatusOr<PackedSizes> SizesOf(const PackedForm& form) {
  if (form.n < 1 || form.k < 1 || form.n > kMostRows || form.k > kMostRows ||
      (form.is_gated && form.n % 2 != 0)) {
    return InvalidArgumentError("a matrix of " + std::to_string(form.n) + " rows and " +
                                std::to_string(form.k) + " columns");
  }
  constexpr int64_t kUnit = 4;
  if (form.codes) {
    if (form.format != WeightFormat::kCompute) return InvalidArgumentError("codes in a format");
    ASSIGN_OR_RETURN(const CodedShape shape, ShapeOfCodes(form));
    return PackedSizes{.panels = shape.PrefixBytes() +
                                 CpuMatrix::NumPanels(form.n, form.is_gated) * shape.PanelBytes()};
  }
  switch (form.format) {
    case WeightFormat::kCompute:
      return PackedSizes{.panels = CpuMatrix::NumPanels(form.n, form.is_gated) *
                                   ComputeUnits(form) * kPanelColumns * kUnit};
    case WeightFormat::kStored: {
      RETURN_IF_ERROR(CheckSources(form));
      PackedSizes sizes;
      for (const PackedForm::Source& source : form.sources) {
        sizes.panels +=
            NumPanelsOf(source.rows) * BlockPanelShape(source.blocks).PanelBytes(form.k);
      }
      return sizes;
    }
    case WeightFormat::kInt8:
    case WeightFormat::kInt4Group32:
    case WeightFormat::kInt4Group128:
      break;
  }
  if (form.k > kMaxQuantizedDepth) {
    return InvalidArgumentError("integer rows of " + std::to_string(form.k) + " columns");
  }
  return PackedSizes{
      .panels = NumPanelsOf(form.n) * QuantizedPanelShape(form.k, form.format).panel_units * kUnit,
      .scales = form.n * SizeOf(DType::kF32)};
}

StatusOr<std::unique_ptr<PackedMatrix>> MapMatrix(const PackedForm& form, const PackedBytes& bytes,
                                                  const std::shared_ptr<const void>& owner) {
  ASSIGN_OR_RETURN(const PackedSizes sizes, SizesOf(form));
  const auto has = [](std::span<const std::byte> part, int64_t size) {
    return static_cast<int64_t>(part.size()) == size &&
           (size == 0 || reinterpret_cast<uintptr_t>(part.data()) % kPackedAlignment == 0);
  };
  if (!has(bytes.panels, sizes.panels) || !has(bytes.scales, sizes.scales)) {
    return InvalidArgumentError("its panels must be " + std::to_string(sizes.panels) +
                                " aligned bytes with " + std::to_string(sizes.scales) +
                                " of scales");
  }
  if (form.codes) {
    ASSIGN_OR_RETURN(const CodedShape shape, ShapeOfCodes(form));
    RETURN_IF_ERROR(CheckGroups(shape, bytes.panels));
    return std::unique_ptr<PackedMatrix>(
        std::make_unique<CpuMatrix>(form.n, form.is_gated, form.dtype,
                                    CodedPanels(shape, Borrowed(bytes.panels, DType::kI8, owner))));
  }
  OwnedTensor panels = Borrowed(bytes.panels, DType::kI8, owner);
  if (form.format == WeightFormat::kStored) {
    return std::unique_ptr<PackedMatrix>(std::make_unique<CpuMatrix>(
        form.n, form.k, form.is_gated, PanelsOf(form, std::move(panels))));
  }
  if (!HasRowScales(form.format)) {
    return std::unique_ptr<PackedMatrix>(std::make_unique<CpuMatrix>(
        form.n, form.k, form.is_gated, ComputeUnits(form), std::move(panels)));
  }
  return std::unique_ptr<PackedMatrix>(std::make_unique<CpuMatrix>(
      form.n, form.k, form.is_gated, QuantizedPanelShape(form.k, form.format).k_units,
      std::move(panels), form.format, Borrowed(bytes.scales, DType::kF32, owner)));
}

}  // namespace tandem
