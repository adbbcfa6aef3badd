#pragma once

// Matrices in codes that integer products cannot take: e4m3 (FP8), tables of 16 numbers (nf4),
// groups of columns that do not lie side by side (GPTQ in activation order), groups smaller than an
// activation block (NVFP4). They stay codes with their scales in float32; a panel is made into
// numbers of the compute type when a product needs it, with the roundings of packing them as
// numbers, so the bits of products are those of WeightFormat::kCompute.
// The memory of a matrix: the group of each column (i32, padded to 64 bytes), 16 numbers of a table
// (f32), then the panels, which have the columns of the output that those of kCompute have:
//   scales, zeros      f32 [groups][64] each; zeros where there are any
//   codes              of 8 bits [k][64] bytes; of 4 bits [(k + 1) / 2][64] bytes, the even column
//                      of the matrix in the lower half
// Thread: any; values. Ownership: views of the matrix's memory.

#include <cstdint>

#include "kernels/code_kind.h"
#include "kernels/cpu/kernel_table.h"

namespace tandem {

struct CodedShape {
  CodeKind kind = CodeKind::kInteger;
  int bits = 8;  // or 4: the codes 0 .. 15
  bool has_zeros = false;
  int64_t num_groups = 1;
  int64_t k = 0;

  int64_t PrefixBytes() const { return (k * 4 + 63) / 64 * 64 + 64; }
  int64_t CodesBegin() const { return num_groups * kPanelColumns * (has_zeros ? 8 : 4); }
  int64_t PanelBytes() const {
    return CodesBegin() + (bits == 8 ? k : (k + 1) / 2) * kPanelColumns;
  }
};

// One panel to be made into numbers.
struct CodedTask {
  const CodedShape* shape;
  const int32_t* groups;  // of the columns
  const float* table;
  const uint8_t* panel;
};

}  // namespace tandem
