#pragma once

// Checks of arguments that several backends share; those of the ops themselves are in ops.cc.
// Thread: any. A violation is our own mistake: CHECK dies with the shapes.

#include <cstdint>
#include <span>

#include "common/status.h"
#include "kernels/adapter_pair.h"
#include "kernels/matrix_source.h"
#include "kernels/ops.h"

namespace tandem {

bool IsMatrix(const Tensor& x, int64_t rows, int64_t columns);
bool IsVector(const Tensor& x, DType dtype, int64_t size);  // contiguous

// Our own mistakes die; rows that are too long for the format are a Status.
Status CheckPack(std::span<const MatrixSource> row_blocks, WeightFormat format);
Status CheckPackGated(std::span<const MatrixSource> row_blocks, WeightFormat format);

// Of a matrix [n, k].
void CheckPair(std::span<const PairSource> blocks, int64_t n, int64_t k);

void CheckBatch(const AttentionBatch& batch, int64_t max_tokens, int64_t max_requests);

// The indices of an op that rotates and writes keys, for backends whose memory the host can read:
// every position, or number of `rows` if there are any, has a row in the table, which is empty if
// nothing is rotated, every slot is in the cache.
void CheckPositionsAndSlots(const Tensor& cos, const LayerKv& kv, const AttentionPlan& plan,
                            const Tensor& rows = {});

}  // namespace tandem
