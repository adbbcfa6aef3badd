#pragma once

// The model of a drafter that has one: a smaller model (method draft_model) or heads over the
// target's hidden states (eagle, eagle3, mtp, medusa). Thread: main, before others start.
// Failure: INVALID_ARGUMENT names the key of --speculative-config or of the drafter's config.json,
// or its tensor.

#include <cstdint>
#include <memory>
#include <optional>

#include "common/status.h"
#include "engine_core/executor/executor.h"
#include "engine_core/models/eagle_head.h"
#include "engine_core/models/medusa_heads.h"
#include "engine_core/models/model.h"
#include "engine_core/models/mtp_head.h"
#include "engine_core/speculation/speculative_config.h"
#include "engine_core/weights/model_config.h"

namespace tandem {

struct DraftModelConfig {
  // Of a head: as if its layer were a model. Of medusa's: the target without layers.
  ModelConfig config;
  std::optional<EagleConfig> eagle = {};
  std::optional<MedusaConfig> medusa = {};
  int64_t mtp_layer = 0;       // of mtp: the number of its layer in the target's checkpoint
  bool copies_tables = false;  // of a target that several ranks share

  // For the plan of memory: an EAGLE head has one table, perhaps of a part of the vocabulary, mtp
  // none, and medusa one for each head. With copies of the target's there may be two.
  ModelConfig PlannedConfig() const;
};

// A loaded drafter. No model and no head: the drafter needs none.
struct DraftModel {
  std::unique_ptr<Model> model;
  std::unique_ptr<DraftHead> head;
  std::unique_ptr<MedusaHeads> medusa;
  std::unique_ptr<Model> tables;  // copies that the head borrows; null: it has the target's
  ModelConfig config;             // DraftModelConfig::config
  int32_t max_positions = 0;      // of a request; longer ones get no drafts
  bool draws = false;             // SpeculativeConfig::draws_drafts
};

// nullopt: the method has no model. INVALID_ARGUMENT: it cannot draft for the target, or not for
// max_model_len tokens.
StatusOr<std::optional<DraftModelConfig>> ReadDraftModelConfig(
    const ModelConfig& target, const SpeculativeConfig& speculation);

// What a head may borrow of its target: embedding and head.
struct DraftTarget {
  const Model& model;  // outlives the drafter
  // Of several ranks, which have parts of them: where copies come from. Null: `model` is whole.
  const ModelConfig* config = nullptr;
  Weights* weights = nullptr;
};

// limits: the target's.
StatusOr<DraftModel> LoadDraftModel(const DraftModelConfig& config,
                                    const SpeculativeConfig& speculation,
                                    const ExecutorLimits& limits, const WeightFormats& formats,
                                    const DraftTarget& target, Weights* weights, Backend* backend);

}  // namespace tandem
