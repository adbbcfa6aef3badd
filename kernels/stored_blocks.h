#pragma once

// WeightFormat::kStored: which matrices are multiplied as their sources store them, and in which
// blocks. GGML's blocks are their own format. Codes with scales by groups of columns (GPTQ, AWQ,
// compressed-tensors) become blocks of 32 to 128 codes with a scale in f32. Every number stays what
// it is: nothing is rounded.
// Pure; any thread. What a source's numbers are decides nothing but the bits of a code, so that any
// part of a matrix's rows is computed as it is in the whole.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/block_format.h"
#include "kernels/matrix_source.h"
#include "kernels/packed_matrix.h"

namespace tandem {

// Activations are rounded to int8 in blocks of this many, each with a scale of its own.
inline constexpr int64_t kActivationBlock = 32;

// The format to pack these stacked matrices in: `format` itself unless it is kStored. Then kStored
// if all of them have blocks, kInt8 if all are int8 rows of W8A8, else kCompute.
WeightFormat ResolveFormat(std::span<const MatrixSource> sources, WeightFormat format);

// nullopt: numbers, columns that are no whole blocks, or scales of too small groups.
std::optional<BlockFormat> FindStoredFormat(const MatrixSource& source);

// Bits per weight of a matrix that is kept in these blocks.
double StoredBits(const BlockFormat& format);

// Block `block` of a row of the source, in its stored format.
void ReadStoredBlock(const MatrixSource& source, const BlockFormat& format, int64_t row,
                     int64_t block, BlockCodes* parts);

}  // namespace tandem
