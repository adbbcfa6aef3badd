// PagedAttention of the cuda ops by FlashInfer.

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/flashinfer/flashinfer.h"

namespace tandem {
namespace {

constexpr int64_t kPrefillBlocksPerMultiprocessor = 2;  // how FlashInfer divides shared memory

}  // namespace

// What it has no kernel for is computed by this project's, whatever is wanted: a vision tower's
// heads beside a text model's, whose shape was checked before.
bool CudaBackend::UsesFlashInfer(const AttentionShape& shape) const {
  const StatusOr<AttentionChoice> choice =
      ChooseAttention(attention_, HasFlashInfer(), dtype_, shape);
  return choice.ok() && choice->is_flashinfer;
}

FlashInferShape CudaBackend::FlashInferShapeOf(const AttentionShape& shape) const {
  FlashInferShape result = {
      .attention = shape,
      .decode_blocks = 1,
      .prefill_blocks = kPrefillBlocksPerMultiprocessor * device_.num_multiprocessors()};
  if (FlashInferDecodes(shape)) {
    const StatusOr<int64_t> blocks =
        FlashInferDecodeBlocks(shape.num_heads, shape.num_kv_heads, shape.head_dim);
    CHECK(blocks.ok()) << blocks.status().ToString();
    result.decode_blocks = *blocks;
  }
  return result;
}

bool CudaOps::AttendByFlashInfer(const Tensor& out, const Tensor& q, const LayerKv& kv,
                                 const AttentionOptions& options, const CudaAttentionPlan& plan) {
  const bool is_aligned = q.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(q.data) % 16 == 0 &&
                          reinterpret_cast<uintptr_t>(out.data) % 16 == 0;
  // FlashInfer counts elements and slots of the block table in 32 bits.
  const Tensor& table = plan.batch().block_table;
  const int64_t most = std::max({q.rows() * q.row_stride, out.NumElements(),
                                 table.rows() * table.row_stride * kv.block_size});
  if (!is_aligned || !out.IsContiguous() || most > INT32_MAX) return false;
  const FlashInferLaunch& decode = plan.flashinfer.decode;
  if (decode.num_requests > 0) {
    if (options.sliding_window > 0 ||
        DecodesOnTensorCores(q.dtype, kv.head_dim, plan.shape.num_heads / kv.num_kv_heads,
                             kv.block_size)) {
      // Our kernels begin at the window; FlashInfer's decode kernel would read the keys before it.
      AttendItems(out, q, kv, options, plan, plan.num_decode_items, /*is_decode=*/true);
    } else {
      LaunchFlashInferPart(out, q, kv, options, plan, decode);
    }
  }
  if (plan.flashinfer.prefill.num_requests > 0) {
    LaunchFlashInferPart(out, q, kv, options, plan, plan.flashinfer.prefill);
  }
  return true;
}

void CudaOps::LaunchFlashInferPart(const Tensor& out, const Tensor& q, const LayerKv& kv,
                                   const AttentionOptions& options, const CudaAttentionPlan& plan,
                                   const FlashInferLaunch& launch) {
  // The plan's chunks count from the start of the context, FlashInfer's from the window's.
  const bool is_split = launch.is_split && options.sliding_window == 0;
  const int32_t* words = plan.flashinfer_words;
  FlashInferCall call;
  call.out = out.Rows(launch.first_token, launch.num_tokens).data;
  call.q = q.Rows(launch.first_token, launch.num_tokens).data;
  call.q_stride = q.row_stride;
  call.k = kv.k;
  call.v = kv.v;
  call.pages = plan.batch().block_table.Data<int32_t>();
  call.num_heads = plan.shape.num_heads;
  call.num_kv_heads = kv.num_kv_heads;
  call.head_dim = kv.head_dim;
  call.block_size = kv.block_size;
  call.scale = options.scale;
  call.sliding_window = options.sliding_window;
  call.soft_cap = options.soft_cap;
  call.tile_rows = launch.tile_rows;
  call.num_requests = launch.num_requests;
  call.num_tokens = launch.num_tokens;
  call.num_blocks = launch.is_split && !is_split ? launch.num_tiles : launch.num_blocks;
  call.page_start = words + plan.flashinfer.page_start + launch.first_request;
  call.context_len = words + plan.flashinfer.context_len + launch.first_request;
  call.query_start = words + launch.query_start;
  call.request = words + launch.request;
  call.query_tile = words + launch.query_tile;
  call.chunk = words + launch.chunk;
  if (launch.is_padded) call.is_used = reinterpret_cast<const bool*>(words + launch.is_used);
  call.chunk_size = words + launch.chunk_size;
  if (is_split) {
    call.partial = plan.flashinfer_partial.view().data;
    call.partial_lse = plan.flashinfer_lse.view().Data<float>();
    call.partial_start = words + launch.partial_start;
    call.merge_start = words + launch.merge_start;
  }
  const Status status = LaunchFlashInfer(device_->stream(), call);
  CHECK(status.ok()) << status.ToString();
}

}  // namespace tandem
