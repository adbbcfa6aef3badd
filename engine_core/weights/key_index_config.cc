#include "engine_core/weights/key_index_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "engine_core/weights/json_fields.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxDim = int64_t{1} << 16;
constexpr int64_t kMaxKeys = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 10'000;

// indexer_types, or index_topk_pattern with a letter for each layer.
Status ReadSharedList(const char* key, const Json& list, ModelConfig* config) {
  const std::string letters = list.is_string() ? list.get<std::string>() : "";
  const auto num_layers = static_cast<size_t>(config->num_layers);
  const size_t size = list.is_string() ? letters.size() : list.is_array() ? list.size() : 0;
  std::vector<bool> shared;
  for (size_t i = 0; i < size && size == num_layers; ++i) {
    const bool is_full = list.is_string() ? letters[i] == 'F' : list[i] == "full";
    const bool is_shared = list.is_string() ? letters[i] == 'S' : list[i] == "shared";
    if (is_full || is_shared) shared.push_back(is_shared);
  }
  if (shared.size() != num_layers) {
    return BadValue(key, list, "full or shared (F or S) for each of the num_hidden_layers");
  }
  if (shared.front()) return BadValue(key, list, "full in the first layer");
  config->index.shared_layers = std::move(shared);
  return OkStatus();
}

// Every index_topk_freq-th layer from the one before index_skip_topk_offset on is full, and so are
// those before.
Status ReadSharedLayers(const Json& json, ModelConfig* config) {
  for (const char* key : {"indexer_types", "index_topk_pattern"}) {
    if (const Json* list = Find(json, key)) return ReadSharedList(key, *list, config);
  }
  int64_t step = 1, offset = 2;
  RETURN_IF_ERROR(ReadSize(json, "index_topk_freq", kMaxLayers, 1, &step));
  RETURN_IF_ERROR(ReadSize(json, "index_skip_topk_offset", kMaxLayers, 2, &offset));
  for (int64_t i = 0; step > 1 && i < config->num_layers; ++i) {
    config->index.shared_layers.push_back(std::max<int64_t>(i - offset + 1, 0) % step != 0);
  }
  return OkStatus();
}

}  // namespace

Status ReadKeyIndex(const Json& json, ModelConfig* config) {
  KeyIndexConfig& index = config->index;
  RETURN_IF_ERROR(ReadSize(json, "index_head_dim", kMaxDim, -1, &index.dim));
  RETURN_IF_ERROR(ReadSize(json, "index_n_heads", kMaxDim, -1, &index.num_heads));
  RETURN_IF_ERROR(ReadSize(json, "index_topk", kMaxKeys, -1, &index.num_keys));
  RETURN_IF_ERROR(ReadBool(json, "indexer_rope_interleave", &index.is_interleaved));
  if (index.dim < config->latent.pe_dim || index.dim % 2 != 0) {
    return InvalidArgumentError("index_head_dim " + std::to_string(index.dim) +
                                " must be even and at least qk_rope_head_dim, which is " +
                                std::to_string(config->latent.pe_dim));
  }
  if (index.num_heads > kMaxDim / index.dim) {
    return InvalidArgumentError("index_n_heads times index_head_dim is too large");
  }
  if (config->latent.q_rank == 0) return InvalidArgumentError("q_lora_rank is missing");
  config->head_dim += index.dim;
  return ReadSharedLayers(json, config);
}

}  // namespace tandem
