#pragma once

// The paged KV cache and the description of one step's batch that attention works from.
// A request's tokens live in blocks of block_size tokens; its block table lists them in order, so
// token p of the request is in slot block_table[p / block_size] * block_size + p % block_size.
// Thread: engine loop. Ownership: KvCache holds the memory. The layout inside a block is known to
// the backend alone; callers pass block tables and slots.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/status.h"
#include "kernels/kv_format.h"
#include "kernels/tensor.h"

namespace tandem {

// What a layer keeps: keys and values of each token, one state per block
// (kernels/recurrence.h), or both.
struct LayerMemory {
  bool has_kv = true;
  bool has_state = false;
  int num_kv_heads = 0, head_dim = 0;  // 0: those of the KvCacheSpec
  int kv_of = -1;  // the earlier layer whose keys and values it reads; -1: its own, if it has any
};

// Bytes that the keys of one block take in a layer with so many heads of that size.
using KeyBytes = std::function<int64_t(int num_kv_heads, int head_dim)>;

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

  std::vector<LayerMemory> layers = {};  // [num_layers]; empty: all have keys and values
  int64_t state_size = 0;                // floats of a layer's state
  // In each layer a block has keys and values, or a state in their place. REQUIRES: `layers` is
  // empty.
  bool has_states_in_place = false;

  // With the sizes that it leaves to the whole.
  LayerMemory memory_of(int layer) const {
    LayerMemory memory = layers.empty() ? LayerMemory{.has_state = has_states_in_place}
                                        : layers[static_cast<size_t>(layer)];
    if (memory.num_kv_heads == 0) memory.num_kv_heads = num_kv_heads;
    if (memory.head_dim == 0) memory.head_dim = head_dim;
    return memory;
  }
  // The layer whose keys and values this one reads.
  int kv_owner(int layer) const {
    const int kv_of = layers.empty() ? -1 : layers[static_cast<size_t>(layer)].kv_of;
    return kv_of >= 0 ? kv_of : layer;
  }
  // Of the first `count` layers.
  int num_with_kv(int count) const {
    int num = 0;
    for (int i = 0; i < count; ++i) num += memory_of(i).has_kv ? 1 : 0;
    return num;
  }
  int num_with_state(int count) const {
    int num = 0;
    for (int i = 0; i < count; ++i) num += memory_of(i).has_state ? 1 : 0;
    return num;
  }
  // Of a block, in all layers, beside its keys and values.
  int64_t state_bytes_per_block() const {
    return has_states_in_place ? 0 : num_with_state(num_layers) * state_bytes();
  }
  int64_t state_bytes() const { return state_size * int64_t{sizeof(float)}; }
  // How many numbers a block has in a batch: with states in place its keys and values lie side by
  // side, each as a block of its own, and more may follow them until a state has room.
  int64_t numbers_per_block(const KeyBytes& key_bytes) const {
    if (!has_states_in_place) return 1;
    const int64_t bytes = key_bytes(num_kv_heads, head_dim);
    return std::max<int64_t>(vectors_per_head(), (state_bytes() + bytes - 1) / bytes);
  }
  // Of the keys of a block in the first `count` layers.
  int64_t key_bytes_per_block(int count, const KeyBytes& key_bytes) const {
    int64_t sum = 0;
    for (int i = 0; i < count; ++i) {
      const LayerMemory memory = memory_of(i);
      if (memory.has_kv) sum += key_bytes(memory.num_kv_heads, memory.head_dim);
    }
    return sum;
  }
  // Of all that a block keeps.
  int64_t bytes_per_block(const KeyBytes& key_bytes) const {
    const int64_t parts = has_states_in_place ? numbers_per_block(key_bytes) : vectors_per_head();
    return parts * key_bytes_per_block(num_layers, key_bytes) + state_bytes_per_block();
  }
};

// The K and V memory of one layer, as a backend laid it out.
struct LayerKv {
  void* k = nullptr;
  void* v = nullptr;
  int num_kv_heads = 0;
  int head_dim = 0;
  int block_size = 0;
  int64_t num_blocks = 0;  // that a batch may name
  KvFormat format = KvFormat::kCompute;
  bool is_latent = false;   // then v is k
  float* states = nullptr;  // of block 0
  int64_t state_size = 0;
  int64_t state_stride = 0;        // floats from the state of a block to the next one's
  float k_scale = 1, v_scale = 1;  // of kFloat8: the checkpoint's, set by the caller
};

// ResourceExhausted: the slots of spec.num_blocks cannot be numbered in 32 bits.
Status CheckNumBlocks(const KvCacheSpec& spec, const KeyBytes& key_bytes);

class KvCache {
 public:
  // memory: spec.num_blocks times spec.bytes_per_block(key_bytes).
  KvCache(const KvCacheSpec& spec, OwnedTensor memory, const KeyBytes& key_bytes);

  const KvCacheSpec& spec() const { return spec_; }
  // Block b of the cache is block b * numbers_per_block() of a batch.
  int64_t numbers_per_block() const { return numbers_per_block_; }
  int64_t num_bytes() const { return memory_.view().NumBytes(); }
  const LayerKv& layer(int layer) const {
    CHECK(layer >= 0 && layer < spec_.num_layers) << "layer " << layer;
    return layers_[static_cast<size_t>(layer)];
  }

 private:
  KvCacheSpec spec_;
  int64_t numbers_per_block_;
  OwnedTensor memory_;           // per layer K, then V of equal size; then the states, per layer
  std::vector<LayerKv> layers_;  // views of it
};

// One step's batch: the new tokens (queries) of all its requests, one after another.
// T tokens, R requests; request r has the tokens query_start[r] .. query_start[r + 1) of the step.
// Its last query is its token context_len[r] - 1, so the keys it sees are 0 .. context_len[r] - 1.
struct AttentionBatch {
  // Host memory; read by AttentionPlan::Fill only, never kept.
  std::span<const int32_t> query_start;  // R + 1, starts with 0, ends with T
  std::span<const int32_t> context_len;  // R; tokens in the cache once this step's are written
  // R; of each request's last queries those that are guesses, fewer than it has: states stay as
  // they are before these. Empty: there are none.
  std::span<const int32_t> num_drafts = {};

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

  // slot_mapping and block_table once more, in host memory, for the plan of a model with states
  // where the host cannot read the others. Read by AttentionPlan::Fill only.
  Tensor host_slot_mapping = {};
  Tensor host_block_table = {};
};

// One request of a step, on the host.
struct BatchSequence {
  int32_t first_token = 0;  // row of the step
  int32_t num_tokens = 0;
  int32_t first_position = 0;
  const int32_t* blocks = nullptr;  // its row of the block table
  int32_t num_drafts = 0;           // of its last tokens, which leave no state

  int32_t num_certain() const { return num_tokens - num_drafts; }
};

struct AttentionShape {
  int num_heads = 0;  // a multiple of num_kv_heads; head h reads KV head h / (heads / kv_heads)
  int num_kv_heads = 0;
  int head_dim = 0;
  int state_block_size = 0;       // tokens of a block, where layers keep states; 0: none does
  bool is_bidirectional = false;  // AttentionOptions' of all layers
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

  const AttentionBatch& batch() const { return batch_; }  // without the caller's spans
  int64_t num_tokens() const { return batch_.positions.rows(); }
  // The requests that write anything, where the host can read the batch.
  std::span<const BatchSequence> sequences() const { return sequences_; }

 protected:
  void ReserveSequences(int64_t max_requests) {
    sequences_.reserve(static_cast<size_t>(max_requests));
  }
  void KeepSequences(const AttentionBatch& batch) {
    sequences_.clear();
    const bool has_copies = !batch.host_block_table.empty();
    const Tensor& table = has_copies ? batch.host_block_table : batch.block_table;
    const auto* slots = (has_copies ? batch.host_slot_mapping : batch.slot_mapping).Data<int32_t>();
    for (size_t r = 0; r < batch.context_len.size(); ++r) {
      const int32_t begin = batch.query_start[r], count = batch.query_start[r + 1] - begin;
      if (count == 0 || slots[begin] < 0) continue;  // padding
      sequences_.push_back({.first_token = begin,
                            .num_tokens = count,
                            .first_position = batch.context_len[r] - count,
                            .blocks = table.Row<int32_t>(static_cast<int64_t>(r)),
                            .num_drafts = batch.num_drafts.empty() ? 0 : batch.num_drafts[r]});
    }
  }

  // Without what is in the caller's memory.
  void SetBatch(const AttentionBatch& batch) {
    batch_ = batch;
    batch_.query_start = batch_.context_len = batch_.num_drafts = {};
    batch_.host_slot_mapping = batch_.host_block_table = {};
  }

 private:
  AttentionBatch batch_;
  std::vector<BatchSequence> sequences_;
};

}  // namespace tandem
