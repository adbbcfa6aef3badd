#pragma once

// What a model's loader works with. Values and references; the weights are not needed after
// loading.

#include <cstdint>
#include <string>

#include "engine_core/models/adapter_sites.h"
#include "engine_core/models/rank_share.h"
#include "engine_core/models/weight_formats.h"
#include "engine_core/weights/model_config.h"
#include "engine_core/weights/safetensors.h"
#include "kernels/backend.h"
#include "kernels/rank_exchange.h"

namespace tandem {

struct ModelLimits {
  int64_t max_tokens = 0;       // of one step
  int64_t max_logits_rows = 0;  // of one call of Logits
  int64_t max_positions = 0;    // of one request
  int64_t max_drafts = 0;       // of one step, in layers that keep a state
};

struct LoadContext {
  const ModelConfig& config;
  const ModelLimits& limits;
  Weights& weights;
  Backend& backend;
  WeightFormats formats = {};
  // Of the cache that the model will use: scales are read for kFloat8 alone.
  KvFormat kv_format = KvFormat::kCompute;
  RankShare stage = {};  // which of the model's layers to load
  RankShare share = {};  // which output rows of each of them
  // The ranks of the stage, which outlive the model; null: there is one.
  RankExchange* ranks = nullptr;
  bool splits_experts = false;  // the ranks have whole experts, else a share of each
  bool makes_logits = true;     // else the model is pooled, and its head is not loaded
  // Not empty: the stage is this layer of the checkpoint alone ("model.layers.61"), without an
  // embedding and a head. The config has one layer then, as it is.
  std::string only_layer = {};
  // Where matrices are registered that adapters may change; null: there are no adapters.
  AdapterSites* adapter_sites = nullptr;

  HeadShare heads() const { return HeadsOf(config, share); }
  // Zeros; where there are other ranks, of which each writes its part.
  StatusOr<OwnedTensor> AllocateShared(DType dtype, std::initializer_list<int64_t> shape) const {
    return ranks != nullptr ? ranks->Allocate(dtype, shape)
                            : backend.device().Allocate(dtype, shape);
  }
};

}  // namespace tandem
