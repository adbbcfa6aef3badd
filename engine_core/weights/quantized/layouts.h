#pragma once

// How quantized checkpoints store a matrix. A layout is a row in layouts.cc and a function in a
// file of its own, which turns the tensors of a module into codes with scales. Which layout a
// module has is read from the tensors that are there, not from the lists of modules in the
// configuration: a file cannot contradict itself. Thread: the loader's. Pure but for the Weights.
// Failure: a Status that names the tensor.

#include <cstdint>

#include "common/status.h"
#include "engine_core/weights/checkpoint_quantization.h"
#include "engine_core/weights/decoded_matrix.h"
#include "engine_core/weights/quantized/module_tensors.h"
#include "kernels/slice.h"

namespace tandem {

struct MatrixShape {
  int64_t rows;     // output
  int64_t columns;  // input
};

using DecodeMatrix = StatusOr<DecodedMatrix> (*)(const ModuleTensors& tensors, MatrixShape shape,
                                                 const CheckpointQuantization& quantization);

// Null for a module that is stored as numbers.
DecodeMatrix FindLayout(const ModuleTensors& tensors, const CheckpointQuantization& quantization);

// GPTQ, and AWQ of version gemm: 4-bit words along the inputs, or along the outputs.
StatusOr<DecodedMatrix> DecodeGptq(const ModuleTensors& tensors, MatrixShape shape,
                                   const CheckpointQuantization& quantization);
StatusOr<DecodedMatrix> DecodeAwq(const ModuleTensors& tensors, MatrixShape shape,
                                  const CheckpointQuantization& quantization);
// bitsandbytes: codes of nf4 or fp4 with scales for runs of numbers, and int8 rows.
StatusOr<DecodedMatrix> DecodeBitsandbytes4(const ModuleTensors& tensors, MatrixShape shape,
                                            const CheckpointQuantization& quantization);
StatusOr<DecodedMatrix> DecodeBitsandbytes8(const ModuleTensors& tensors, MatrixShape shape,
                                            const CheckpointQuantization& quantization);
// compressed-tensors: integers of 2, 4 or 8 bits in words.
StatusOr<DecodedMatrix> DecodePackedIntegers(const ModuleTensors& tensors, MatrixShape shape,
                                             const CheckpointQuantization& quantization);
// int8 or e4m3, with a scale for the tensor, a row or a block.
StatusOr<DecodedMatrix> DecodeScaled(const ModuleTensors& tensors, MatrixShape shape,
                                     const CheckpointQuantization& quantization);
// e2m1 with scales in e4m3 (NVFP4) or powers of two (MXFP4).
StatusOr<DecodedMatrix> DecodeFp4(const ModuleTensors& tensors, MatrixShape shape,
                                  const CheckpointQuantization& quantization);

// MXFP4 as gpt-oss has it: matrix `idx` of "<module>_blocks" [count, rows, columns / 32, 16] with
// "<module>_scales" [count, rows, columns / 32], of which the rows begin, begin + step, ... are
// decoded.
StatusOr<DecodedMatrix> DecodeMxfp4OfStack(const ModuleTensors& tensors, MatrixShape shape,
                                           int64_t idx, int64_t count, Slice rows, int64_t step);

}  // namespace tandem
