#pragma once

// What backend.h demands of the arguments of each op, for the backends to check first thing.
// Thread: any. A violation is our own mistake: CHECK dies with the shapes.

#include "kernels/backend.h"

namespace tandem {

// The types a backend computes in.
struct OpTypes {
  DType activation;
  DType residual;
};

// Our own mistakes die; rows that are too long for the format are a Status.
Status CheckPack(std::span<const Tensor> row_blocks, WeightFormat format);
Status CheckPackGated(std::span<const Tensor> row_blocks, WeightFormat format);
void CheckEmbedding(OpTypes types, const Tensor& out, const Tensor& ids, const PackedMatrix& table);
void CheckRmsNorm(OpTypes types, const Tensor& out, const Tensor& x, const Tensor& weight);
void CheckAddRmsNorm(OpTypes types, const Tensor& out, const Tensor& residual, const Tensor& x,
                     const Tensor& weight);
void CheckLinear(OpTypes types, const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                 const Tensor& bias, LinearEpilogue epilogue);
void CheckRmsNormLinear(OpTypes types, const Tensor& out, const Tensor& x,
                        const Tensor& norm_weight, const PackedMatrix& weight, const Tensor& bias,
                        LinearEpilogue epilogue);
void CheckSiluAndMul(OpTypes types, const Tensor& out, const Tensor& gate_up);
void CheckLayerNorm(OpTypes types, const Tensor& out, const Tensor& x, const Tensor& weight,
                    const Tensor& bias);
void CheckAdd(OpTypes types, const Tensor& residual, const Tensor& x);
void CheckConvert(OpTypes types, const Tensor& out, const Tensor& x);
void CheckGelu(OpTypes types, const Tensor& out, const Tensor& x);
void CheckSoftCap(const Tensor& x, float cap);
void CheckBatch(const AttentionBatch& batch, int64_t max_tokens, int64_t max_requests);
void CheckQkNormRopeWriteKv(OpTypes types, const Tensor& out, const Tensor& qkv, const QkRope& rope,
                            const LayerKv& kv, const AttentionPlan& plan);
// The same op's indices, for backends whose memory the host can read: every position has a row in
// the tables, every slot is in the cache.
void CheckPositionsAndSlots(const QkRope& rope, const LayerKv& kv, const AttentionPlan& plan);
void CheckPagedAttention(OpTypes types, const Tensor& out, const Tensor& q, const LayerKv& kv,
                         const AttentionPlan& plan);
void CheckGatherRows(const Tensor& out, const Tensor& x, const Tensor& rows);
void CheckRouteTopK(const Tensor& expert_ids, const Tensor& weights, const Tensor& logits);
// Indices themselves are checked where the host can read them, by the backend.
void CheckGroupByExpert(const ExpertPairs& pairs, const Tensor& expert_ids, const Tensor& weights);
void CheckExpertLinear(OpTypes types, const Tensor& out, const Tensor& x,
                       const PackedExperts& experts, const ExpertPairs& pairs,
                       LinearEpilogue epilogue);
void CheckAddWeightedRows(OpTypes types, const Tensor& residual, const Tensor& x,
                          const Tensor& rows, const Tensor& weights);
void CheckArgmax(const Tensor& ids, const Tensor& logits);
void CheckLogSumExp(const Tensor& out, const Tensor& logits);

}  // namespace tandem
