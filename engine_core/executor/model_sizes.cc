#include "engine_core/executor/model_sizes.h"

#include <algorithm>

#include "engine_core/models/rank_share.h"

namespace tandem {
namespace {

// Logits are made in chunks of rows, so that a large batch over a large vocabulary stays bounded.
constexpr int64_t kMaxLogitsBytes = int64_t{256} << 20;
// Rows of drafts that are made together with those of the requests.
constexpr int64_t kMostDraftRows = 64;

int64_t MaxLogitsRows(const ExecutorLimits& limits) {
  const int64_t fitting = kMaxLogitsBytes / (int64_t{limits.vocab_size} * int64_t{sizeof(float)});
  const int64_t num_drafts = int64_t{limits.max_num_seqs} * limits.drafts.num_speculative_tokens;
  return std::clamp<int64_t>(fitting, 1,
                             limits.max_num_seqs + std::min(num_drafts, kMostDraftRows));
}

}  // namespace

KvCacheSpec KvSpecOf(const ModelConfig& config, int32_t block_size, int64_t num_blocks,
                     KvFormat format, const RankPlace& place) {
  return {.num_layers = static_cast<int>(LayersOf(config.num_layers, place.stage).count),
          .num_kv_heads = static_cast<int>(HeadsOf(config, place.share).kv_heads.count),
          .head_dim = static_cast<int>(config.head_dim),
          .block_size = block_size,
          .num_blocks = num_blocks,
          .format = format,
          .is_latent = config.latent.kv_rank > 0};
}

AttentionShape AttentionShapeOf(const ModelConfig& config, RankShare share) {
  return HeadsOf(config, share).attention_shape();
}

ModelLimits ModelLimitsOf(const ExecutorLimits& limits) {
  return {.max_tokens = limits.max_num_batched_tokens,
          .max_logits_rows = MaxLogitsRows(limits),
          .max_positions = limits.max_model_len};
}

}  // namespace tandem
