#pragma once

// Where a process has its model from, or a rank its part of one: the files, and how they are
// packed. An engine that may sleep keeps the files open, which takes no memory, so that it wakes
// with the weights that it had, whatever has become of the folder; or it closes them, and wakes
// with what the folder has then.
// Thread: engine loop, main before it. Owns the mapped files; borrows the ranks, which outlive it.
// Failure: what is wrong with the checkpoint, or memory.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "engine_core/executor/rank_group.h"
#include "engine_core/models/model.h"
#include "engine_core/models/vision_tower.h"
#include "engine_core/weights/loading_progress.h"
#include "engine_core/weights/packed_parts.h"
#include "engine_core/weights/safetensors.h"

namespace tandem {

struct ModelSourceOptions {
  std::string path;
  std::string load_format = "auto";
  uint64_t seed = 0;  // of weights that are made up
  ModelConfig config;
  ModelLimits limits;
  WeightFormats formats;
  RankGroup* ranks = nullptr;  // null: there is one
  bool splits_experts = false;
  bool makes_logits = true;  // LoadContext's
  KvFormat kv_format = KvFormat::kCompute;
  // Called by Open, of a file of packed matrices.
  std::function<void(PackedParts parts)> on_packed = {};
};

class ModelSource {
 public:
  explicit ModelSource(ModelSourceOptions options) : options_(std::move(options)) {}

  // Opens the files; does nothing while they are open.
  Status Open();
  void Close() { weights_.reset(); }
  // Opens the files if need be, and packs the model. adapter_sites: filled; null: there are no
  // adapters, or they are for the sites of an earlier call.
  StatusOr<std::unique_ptr<Model>> Load(Backend* backend, AdapterSites* adapter_sites = nullptr);
  // The vision tower of a model that has one.
  StatusOr<std::unique_ptr<VisionTower>> LoadTower(Backend* backend);
  // REQUIRES: open.
  const Weights& weights() const { return *weights_; }
  Weights& weights() { return *weights_; }

 private:
  std::unique_ptr<Weights> ReportingWeights(LoadingBar* bar);

  const ModelSourceOptions options_;
  const SystemClock clock_;
  std::unique_ptr<Weights> weights_;
  std::vector<MatrixForm> adapted_;  // the forms of the sites
};

}  // namespace tandem
