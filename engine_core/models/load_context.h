#pragma once

// What a model's loader works with. Values and references; the weights are not needed after
// loading.

#include <cstdint>

#include "engine_core/models/rank_share.h"
#include "engine_core/models/weight_formats.h"
#include "engine_core/weights/model_config.h"
#include "engine_core/weights/safetensors.h"
#include "kernels/backend.h"

namespace tandem {

struct ModelLimits {
  int64_t max_tokens = 0;       // of one step
  int64_t max_logits_rows = 0;  // of one call of Logits
  int64_t max_positions = 0;    // of one request
};

struct LoadContext {
  const ModelConfig& config;
  const ModelLimits& limits;
  Weights& weights;
  Backend& backend;
  WeightFormats formats = {};
  RankShare stage = {};  // which of the model's layers to load
  RankShare share = {};  // which heads and inner columns of each of them

  HeadShare heads() const { return HeadsOf(config, share); }
};

}  // namespace tandem
