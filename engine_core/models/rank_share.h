#pragma once

// Which part of a model one rank holds: the layers of a stage, and of each layer the output rows of
// a share. Every loader takes its sizes from here, so that they are the rank's own.
// Every matrix is split by its output rows alone, so each number that a rank computes is computed
// as one rank would: no sum is cut. What the next matrix needs of the other ranks it reads from
// them (kernels/shared_communicator.h). Values, any thread. REQUIRES: a share's size divides the
// number of heads, the hidden size and the inner sizes, and divides the numbers of key-value heads
// or is a multiple of them (CheckRanks).

#include <cstdint>

#include "common/status.h"
#include "engine_core/weights/model_config.h"
#include "kernels/ops.h"
#include "kernels/slice.h"

namespace tandem {

// One of `size` ranks.
struct RankShare {
  int rank = 0;
  int size = 1;
  bool is_first() const { return rank == 0; }
  bool is_last() const { return rank == size - 1; }
  // This rank's part of n items, which `size` divides.
  Slice Of(int64_t n) const;
  // The same where it does not: the last ranks have fewer, perhaps none.
  Slice OfAbout(int64_t n) const;
  bool operator==(const RankShare&) const = default;
};

// Neither the first stage, which embeds, nor the last, which makes logits: a head over a model's
// states is loaded as such.
inline constexpr RankShare kNoEnds = {.rank = 1, .size = 3};

// Where a rank stands: in which stage of the pipeline, and with which share of its layers.
struct RankPlace {
  RankShare stage;
  RankShare share;
};

// Whether a model can be split so. INVALID_ARGUMENT names the size that cannot.
struct RankSizes {
  int tensor_parallel_size = 1;
  int pipeline_parallel_size = 1;
  bool splits_experts = false;
};
Status CheckRanks(const ModelConfig& config, const RankSizes& sizes);

// The layers of one stage of a pipeline: runs of equal length, with one layer more in the last
// stage but one and in those before it where `size` does not divide num_layers (the last stage has
// the head, and the first the embedding). vLLM splits the same way.
Slice LayersOf(int64_t num_layers, RankShare stage);
// Those of a model. Layers that read the keys and values of earlier ones are in one stage with
// these, the last, which may thus be longer than the others. A stage that would begin with a layer
// whose tokens attend to the keys that the layer before chooses begins with the one that does.
Slice LayersOf(const ModelConfig& config, RankShare stage);

// The attention heads of one rank. Each key-value head is on the ranks of the query heads that read
// it: ranks that outnumber the key-value heads hold copies.
struct HeadShare {
  int64_t head_dim = 0;
  Slice heads;     // of config.num_heads
  Slice kv_heads;  // of config.num_kv_heads

  int64_t q_size() const { return heads.count * head_dim; }
  int64_t kv_size() const { return kv_heads.count * head_dim; }
  int64_t qkv_size() const { return q_size() + 2 * kv_size(); }
  // The rows of the projections; q_rows are also the rank's part of what attention computes.
  Slice q_rows() const { return {heads.begin * head_dim, q_size()}; }
  Slice kv_rows() const { return {kv_heads.begin * head_dim, kv_size()}; }
  AttentionShape attention_shape() const;
};
HeadShare HeadsOf(const ModelConfig& config, RankShare share = {});
// Those of one layer, of a model whose layers differ in their heads.
HeadShare HeadsOfLayer(const ModelConfig& config, int64_t layer, RankShare share = {});

}  // namespace tandem
