#pragma once

// A decoder-only language model over a Backend: many implementations, one file each, found by
// architecture name in registry.cc.
// Thread: engine loop. Owns: packed weights and the activations, both allocated when it is loaded;
// borrows the backend, which outlives it. Nothing is allocated in Forward or Logits, and neither
// waits for what a device has worked out, so that both can be captured (Device::BeginCapture).
// Shapes: T tokens of a step (at most ModelLimits::max_tokens), V vocabulary.

#include <cstdint>
#include <memory>
#include <string>

#include "common/status.h"
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

struct ModelStep {
  Tensor token_ids;  // [T] i32, in backend memory
  const AttentionPlan* plan = nullptr;
  const KvCache* kv_cache = nullptr;
};

class Model {
 public:
  virtual ~Model() = default;
  // Runs all layers for the step's tokens, writes their keys and values to the cache and keeps the
  // last hidden states until the next call.
  virtual void Forward(const ModelStep& step) = 0;
  // logits[i, :] = the logits of the step's token rows[i].  logits: [R, V] f32; rows: [R] i32.
  virtual void Logits(const Tensor& logits, const Tensor& rows) = 0;
};

// What a loader works with. The weights are not needed afterwards.
struct LoadContext {
  const ModelConfig& config;
  const ModelLimits& limits;
  Weights& weights;
  Backend& backend;
  WeightFormats formats = {};
};

}  // namespace tandem
