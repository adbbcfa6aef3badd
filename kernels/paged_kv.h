#pragma once

// The paged KV cache and the description of one step's batch that attention works from.
// A request's tokens live in blocks of block_size tokens; its block table lists them in order, so
// token p of the request is in slot block_table[p / block_size] * block_size + p % block_size.
// Thread: engine loop. Ownership: KvCache holds the memory. The layout inside a block is known to
// the backend alone; callers pass block tables and slots.

#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace tandem {

// How keys and values are stored. kCompute: in the backend's compute type. kInt8: each token's K of
// a head rounded to int8 in [-127, 127] with a float32 scale of its own, max |K| / 127, and V
// likewise.
enum class KvFormat { kCompute, kInt8 };

struct KvCacheSpec {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int block_size = 0;  // tokens per block; for the cpu backend a multiple of 32
  int64_t num_blocks = 0;
  KvFormat format = KvFormat::kCompute;
  // Latent attention: a token has one vector, which is its key and its value. There is no V.
  bool is_latent = false;

  int vectors_per_head() const { return is_latent ? 1 : 2; }  // of a token
};

// The K and V memory of one layer, as a backend laid it out.
struct LayerKv {
  void* k = nullptr;
  void* v = nullptr;
  int num_kv_heads = 0;
  int head_dim = 0;
  int block_size = 0;
  int64_t num_blocks = 0;
  KvFormat format = KvFormat::kCompute;
  bool is_latent = false;  // then v is k
};

class KvCache {
 public:
  KvCache(const KvCacheSpec& spec, OwnedTensor memory) : spec_(spec), memory_(std::move(memory)) {}

  const KvCacheSpec& spec() const { return spec_; }
  int64_t num_bytes() const { return memory_.view().NumBytes(); }
  LayerKv layer(int layer) const {
    CHECK(layer >= 0 && layer < spec_.num_layers) << "layer " << layer;
    const int64_t vectors = spec_.vectors_per_head();
    const int64_t part = num_bytes() / (vectors * spec_.num_layers);
    auto* base = static_cast<std::byte*>(memory_.view().data) + vectors * part * layer;
    return {.k = base,
            .v = base + (vectors - 1) * part,
            .num_kv_heads = spec_.num_kv_heads,
            .head_dim = spec_.head_dim,
            .block_size = spec_.block_size,
            .num_blocks = spec_.num_blocks,
            .format = spec_.format,
            .is_latent = spec_.is_latent};
  }

 private:
  KvCacheSpec spec_;
  OwnedTensor memory_;  // per layer K, then V of equal size
};

// One step's batch: the new tokens (queries) of all its requests, one after another.
// T tokens, R requests; request r has the tokens query_start[r] .. query_start[r + 1) of the step.
// Its last query is its token context_len[r] - 1, so the keys it sees are 0 .. context_len[r] - 1.
struct AttentionBatch {
  // Host memory; read by AttentionPlan::Fill only, never kept.
  std::span<const int32_t> query_start;  // R + 1, starts with 0, ends with T
  std::span<const int32_t> context_len;  // R; tokens in the cache once this step's are written

  // Backend memory (kI32); must stay valid and unchanged until the step's last op.
  Tensor positions;     // [T], the token's place in its request; chooses the RoPE row
  Tensor slot_mapping;  // [T], where K and V of the token go; -1: nowhere (padding)
  Tensor block_table;   // [R, max_blocks], rows may be strided; only the first
                        // ceil(context_len / block_size) entries of a row are read

  // Room for the plan's numbers on the device, so that they travel with the caller's own:
  // AttentionPlan::Fill writes host_work, the caller copies it to `work` before the ops.
  // [AttentionPlan::WorkSize()] i32. Empty: the plan has memory of its own and copies at once.
  Tensor host_work;
  Tensor work;
};

struct AttentionShape {
  int num_heads = 0;  // a multiple of num_kv_heads; head h reads KV head h / (heads / kv_heads)
  int num_kv_heads = 0;
  int head_dim = 0;
  bool operator==(const AttentionShape&) const = default;
};

// What a backend derives from a batch once a step, for the ops of all layers. Made by
// Backend::MakeAttentionPlan, reused from step to step; Fill allocates nothing.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;

  // Takes the step's batch, and writes batch.host_work where it is given. A batch of one token per
  // request makes a plan whose sizes depend on the number of requests alone.
  virtual void Fill(const AttentionBatch& batch) = 0;
  // Numbers (i32) of AttentionBatch::work for a batch of num_tokens and num_requests; 0: the plan
  // has no use for it.
  virtual int64_t WorkSize(int64_t /*num_tokens*/, int64_t /*num_requests*/) const { return 0; }

  const AttentionBatch& batch() const { return batch_; }  // without query_start and context_len
  int64_t num_tokens() const { return batch_.positions.rows(); }

 protected:
  // Without the spans in the caller's memory.
  void SetBatch(const AttentionBatch& batch) {
    batch_ = batch;
    batch_.query_start = batch_.context_len = {};
  }

 private:
  AttentionBatch batch_;
};

}  // namespace tandem
