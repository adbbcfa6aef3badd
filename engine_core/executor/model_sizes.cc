#include "engine_core/executor/model_sizes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/strings.h"
#include "engine_core/models/rank_share.h"
#include "engine_core/models/recurrent_share.h"

namespace tandem {
namespace {

// Logits are made in chunks of rows, so that a large batch over a large vocabulary stays bounded.
constexpr int64_t kMaxLogitsBytes = int64_t{256} << 20;
// Rows of drafts that are made together with those of the requests; drafts of a step, where layers
// keep what goes into them.
constexpr int64_t kMostDraftRows = 64;

int64_t MaxLogitsRows(const ExecutorLimits& limits) {
  const int64_t fitting = kMaxLogitsBytes / (int64_t{limits.vocab_size} * int64_t{sizeof(float)});
  const int64_t num_drafts = int64_t{limits.max_num_seqs} * limits.drafts.num_speculative_tokens;
  return std::clamp<int64_t>(fitting, 1,
                             limits.max_num_seqs + std::min(num_drafts, kMostDraftRows));
}

// At least those of one request.
int64_t MaxDrafts(const ExecutorLimits& limits) {
  const int64_t num_of_request = limits.drafts.num_speculative_tokens;
  return std::min(limits.max_num_seqs * num_of_request, std::max(kMostDraftRows, num_of_request));
}

// What a layer keeps of a request's tokens: that of all; of recent ones, as keys or as a state;
// nothing.
enum class Keeps { kAll, kRecent, kNothing };

Keeps KeptBy(const ModelConfig& config, int64_t layer) {
  if (config.IsLocal(layer) || config.recurrent.HasState(layer)) return Keeps::kRecent;
  return config.recurrent.HasKv(layer) ? Keeps::kAll : Keeps::kNothing;
}

struct LayerCounts {
  int64_t full = 0, local = 0;
};

LayerCounts CountLayers(const ModelConfig& config, RankShare stage = {}) {
  const Slice slice = LayersOf(config, stage);
  LayerCounts counts;
  for (int64_t i = slice.begin; i < slice.end(); ++i) {
    const Keeps kept = KeptBy(config, i);
    counts.full += kept == Keeps::kAll ? 1 : 0;
    counts.local += kept == Keeps::kRecent ? 1 : 0;
  }
  return counts;
}

// A layer has a state and keys, or some layers have states and others a window: all are one group.
bool HasMixedMemory(const ModelConfig& config) {
  if (config.recurrent.num_layers() == 0) return false;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const bool has_both = config.recurrent.HasState(i) && config.recurrent.HasKv(i);
    if (config.IsLocal(i) || has_both) return true;
  }
  return false;
}

std::string BytesPerToken(int64_t bytes, int64_t num_layers) {
  return WithCommas(bytes) + " bytes per token in " + std::to_string(num_layers) + " layers";
}

// Of a model with layers of one kind or both.
int64_t LayersOfGroup(const LayerCounts& counts) {
  const auto [fewer, more] = std::minmax(counts.full, counts.local);
  return fewer == 0 || 4 * more < 5 * fewer ? more : fewer;
}

// The most layers of a group that a stage has: of the whole model LayersOfGroup. A stage without a
// layer that keeps anything has one, which is written by none.
int64_t LayersOfCache(const ModelConfig& config, RankShare stage) {
  const LayerGroups groups = LayerGroupsOf(config);
  const LayerCounts counts = CountLayers(config, stage);
  const auto most = [](int64_t num_layers, int64_t num_groups) {
    return num_groups == 0 ? 0 : (num_layers + num_groups - 1) / num_groups;
  };
  return std::max(
      {int64_t{1}, most(counts.full, groups.num_full), most(counts.local, groups.num_local)});
}

std::string GroupMemoryText(const ModelConfig& config, const LayerGroups& groups,
                            int64_t bytes_per_block, int64_t block_size) {
  const LayerCounts counts = CountLayers(config);
  const int64_t bytes_per_token = bytes_per_block / block_size;
  const std::string local_layers = std::to_string(counts.local);
  std::string text = BytesPerToken(groups.num_full * bytes_per_token, counts.full) + ", ";
  if (groups.has_states) {
    text += WithCommas(groups.num_local * bytes_per_block) + " for a state in each of " +
            local_layers + " more";
  } else {
    text += WithCommas(groups.num_local * bytes_per_token) + " in " + local_layers + " that keep " +
            (groups.chunk > 0 ? "a chunk of " + std::to_string(groups.chunk)
                              : "a window of " + std::to_string(groups.window));
  }
  return text + "; blocks of " + std::to_string(groups.count()) + " groups of layers";
}

}  // namespace

LayerGroups LayerGroupsOf(const ModelConfig& config) {
  const LayerCounts counts = CountLayers(config);
  if (counts.local == 0 || HasMixedMemory(config)) return {};
  const int64_t size = LayersOfGroup(counts);
  const auto num_full = static_cast<int32_t>((counts.full + size - 1) / size);
  const auto num_local = static_cast<int32_t>((counts.local + size - 1) / size);
  if (config.recurrent.num_layers() > 0) return LayerGroups::OfStates(num_full, num_local);
  LayerGroups groups = {.num_full = num_full, .num_local = num_local};
  groups.window = static_cast<int32_t>(config.sliding_window);
  if (config.sliding_window == 0) groups.chunk = static_cast<int32_t>(config.attention_chunk_size);
  return groups;
}

std::vector<KvPlace> KvPlacesOf(const ModelConfig& config, RankShare stage) {
  const LayerGroups groups = LayerGroupsOf(config);
  const int64_t size = LayersOfCache(config, stage);
  const Slice slice = LayersOf(config, stage);
  int64_t num_full_before = 0, num_local_before = 0;
  std::vector<KvPlace> places;
  for (int64_t i = slice.begin; i < slice.end(); ++i) {
    const Keeps kept = KeptBy(config, i);
    if (kept == Keeps::kNothing) {
      places.emplace_back();
      continue;
    }
    const bool is_local = kept == Keeps::kRecent;
    const int64_t num_before = is_local ? num_local_before++ : num_full_before++;
    const int64_t first = is_local ? groups.num_full : 0;
    places.push_back({.layer = static_cast<int>(num_before % size),
                      .group = static_cast<int>(first + num_before / size)});
  }
  return places;
}

KvCacheSpec KvSpecOf(const ModelConfig& config, int32_t block_size, int64_t num_blocks,
                     KvFormat format, const RankPlace& place, const LayerGroups& groups) {
  const Slice slice = LayersOf(config, place.stage);
  std::vector<LayerMemory> layers;
  for (int64_t i = slice.begin; config.is_uneven() && i < slice.end(); ++i) {
    const int64_t from = config.KvLayerOf(i);
    const AttentionShape heads = HeadsOfLayer(config, i, place.share).attention_shape();
    layers.push_back({.has_kv = from == i,
                      .num_kv_heads = heads.num_kv_heads,
                      .head_dim = heads.head_dim,
                      .kv_of = from == i ? -1 : static_cast<int>(from - slice.begin)});
  }
  for (int64_t i = slice.begin; !config.index.shared_layers.empty() && i < slice.end(); ++i) {
    const int64_t index_dim = config.index.IsShared(i) ? 0 : config.index.dim;
    layers.push_back(
        {.head_dim = static_cast<int>(config.head_dim - config.index.dim + index_dim)});
  }
  const bool has_states = config.recurrent.num_layers() > 0, has_groups = groups.count() > 1;
  for (int64_t i = slice.begin; has_states && !has_groups && i < slice.end(); ++i) {
    layers.push_back(
        {.has_kv = config.recurrent.HasKv(i), .has_state = config.recurrent.HasState(i)});
  }
  int64_t num_layers = config.is_bidirectional ? 1 : slice.count;
  if (has_groups) {
    CHECK(groups == LayerGroupsOf(config) && layers.empty());
    num_layers = LayersOfCache(config, place.stage);
  }
  return {.num_layers = static_cast<int>(num_layers),
          .num_kv_heads = static_cast<int>(HeadsOf(config, place.share).kv_heads.count),
          .head_dim = static_cast<int>(config.head_dim),
          .block_size = block_size,
          .num_blocks = num_blocks,
          .format = format,
          .is_latent = config.latent.kv_rank > 0,
          .layers = std::move(layers),
          .state_size = RecurrentShareOf(config.recurrent, place.share).own.state_size(),
          .has_states_in_place = has_states && has_groups};
}

int64_t DefaultBlockSize(const ModelConfig& config, DType dtype, KvFormat format, bool is_device,
                         const LayerGroups& groups, RankShare share) {
  constexpr int64_t kTile = 32, kAlone = 256, kMost = 4096;
  if (config.recurrent.num_layers() == 0) return is_device ? 16 : kTile;
  int64_t num_states = config.recurrent.num_layers(), num_kv = 0;
  for (int64_t i = 0; i < config.num_layers; ++i) num_kv += config.recurrent.HasKv(i) ? 1 : 0;
  if (num_kv == 0) return kAlone;
  if (groups.count() > 1) num_states = num_kv = 1;  // a block is of one kind
  const int64_t vectors = config.latent.kv_rank > 0 ? 1 : 2;
  const int64_t number_bits = format == KvFormat::kCompute ? 8 * SizeOf(dtype)
                              : format == KvFormat::kInt4  ? 4
                                                           : 8;
  const int64_t num_kv_heads = HeadsOf(config, share).kv_heads.count;
  const int64_t state_size = RecurrentShareOf(config.recurrent, share).own.state_size();
  const int64_t token_bits = vectors * num_kv * num_kv_heads * config.head_dim * number_bits;
  const int64_t state_bits = 8 * num_states * state_size * SizeOf(DType::kF32);
  const int64_t tokens = (state_bits + token_bits - 1) / token_bits;
  return std::clamp((tokens + kTile - 1) / kTile * kTile, kTile, kMost);
}

std::string KvMemoryText(const ModelConfig& config, const KvCacheSpec& spec,
                         const LayerGroups& groups, int64_t bytes_per_block) {
  if (groups.count() > 1) {
    return GroupMemoryText(config, groups, bytes_per_block, spec.block_size);
  }
  const int num_kv = spec.num_with_kv(spec.num_layers);
  const int num_states = spec.num_with_state(spec.num_layers);
  const int64_t state_bytes = spec.state_bytes_per_block();
  std::string text;
  if (num_kv > 0) {
    text = BytesPerToken((bytes_per_block - state_bytes) / spec.block_size, num_kv) +
           (spec.is_latent ? " of latents" : "");
  }
  if (num_states > 0) {
    text += (text.empty() ? "" : ", ") + WithCommas(state_bytes) + " bytes per block for " +
            std::to_string(num_states) + " layers' states";
  }
  return text;
}

AttentionShape AttentionShapeOf(const ModelConfig& config, RankShare share) {
  AttentionShape shape = HeadsOf(config, share).attention_shape();
  shape.is_bidirectional = config.is_bidirectional;
  if (!config.is_uneven()) return shape;
  // A plan is cut for the most query heads of a key-value head, its room is for the widest. The
  // last layer has no window.
  const AttentionShape global =
      HeadsOfLayer(config, config.num_layers - 1, share).attention_shape();
  shape.num_kv_heads = std::min(shape.num_kv_heads, global.num_kv_heads);
  shape.head_dim = std::max(shape.head_dim, global.head_dim);
  return shape;
}

void AddStates(const KvCacheSpec& spec, AttentionShape* shape) {
  if (spec.num_with_state(spec.num_layers) > 0) shape->state_block_size = spec.block_size;
}

ModelLimits ModelLimitsOf(const ExecutorLimits& limits) {
  return {.max_tokens = limits.max_num_batched_tokens,
          .max_logits_rows = MaxLogitsRows(limits),
          .max_positions = limits.max_model_len,
          .max_drafts = MaxDrafts(limits)};
}

}  // namespace tandem
