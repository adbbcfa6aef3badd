#pragma once

// What the CPU backend packs, as bytes and what they mean: for files that hold packed matrices and
// are mapped in place of packing again (engine_core/weights/packed_file.h). The bytes are the
// memory that the products read, so a mapped matrix gives the bits of one that was packed.
// Thread: any. Ownership: the bytes of a mapped matrix belong to `owner`, which it keeps.
// Failure: INVALID_ARGUMENT for a form that no matrix has, or bytes of another size: forms come
// from strangers' files. What the bytes contain is not checked: any bytes are numbers.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "kernels/block_format.h"
#include "kernels/code_kind.h"
#include "kernels/packed_matrix.h"
#include "kernels/tensor.h"

namespace tandem {

// Matrices that were packed under another name cannot be mapped. All instruction sets of an
// architecture read the same panels.
std::string_view PanelKind();

// Bytes of a matrix begin at multiples of this.
inline constexpr int64_t kPackedAlignment = 4096;

struct PackedForm {
  int64_t n = 0, k = 0;
  bool is_gated = false;
  WeightFormat format = WeightFormat::kCompute;
  DType dtype = DType::kBf16;  // the backend's compute type
  // kStored: the rows of each source, from the top, and their blocks.
  struct Source {
    int64_t rows = 0;
    BlockFormat blocks = {};
  };
  std::vector<Source> sources = {};
  // kCompute whose matrices stay codes (kernels/cpu/coded_panel.h).
  struct Codes {
    CodeKind kind = CodeKind::kInteger;
    int bits = 8;
    bool has_zeros = false;
    int64_t num_groups = 1;
  };
  std::optional<Codes> codes = {};
};

struct PackedBytes {
  std::span<const std::byte> panels;
  std::span<const std::byte> scales;  // of the integer formats, else empty
};

struct PackedSizes {
  int64_t panels = 0, scales = 0;  // bytes
};

// REQUIRES: a matrix that a CPU backend of `dtype` packed. bytes: views of it.
PackedForm FormOf(const PackedMatrix& matrix, DType dtype, PackedBytes* bytes);

StatusOr<PackedSizes> SizesOf(const PackedForm& form);

StatusOr<std::unique_ptr<PackedMatrix>> MapMatrix(const PackedForm& form, const PackedBytes& bytes,
                                                  const std::shared_ptr<const void>& owner);

}  // namespace tandem
