#include "engine_core/executor/draft_model.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "engine_core/executor/model_sizes.h"
#include "engine_core/models/registry.h"

namespace tandem {
namespace {

Status CheckDraftModel(const ModelConfig& target, const ModelConfig& draft,
                       const SpeculativeConfig& speculation) {
  if (draft.vocab_size != target.vocab_size) {
    return InvalidArgumentError("--speculative-config: model " + speculation.model +
                                " has a vocabulary of " + std::to_string(draft.vocab_size) +
                                " tokens, it must be the target's of " +
                                std::to_string(target.vocab_size));
  }
  if (draft.recurrent.num_layers() > 0) {
    return InvalidArgumentError("--speculative-config: model " + speculation.model +
                                " has recurrent layers, which a drafter must not have: each of its "
                                "passes would need a state of its own");
  }
  const int64_t longest = draft.max_position_embeddings;
  if (speculation.max_model_len.value_or(0) <= longest) return OkStatus();
  return InvalidArgumentError("--speculative-config: max_model_len is " +
                              std::to_string(*speculation.max_model_len) +
                              ", must be at most the model's " + std::to_string(longest));
}

StatusOr<DraftModelConfig> ReadConfig(const ModelConfig& target,
                                      const SpeculativeConfig& speculation) {
  DraftModelConfig draft;
  if (!speculation.has_head()) {
    ASSIGN_OR_RETURN(draft.config, ReadModelConfig(speculation.model));
    return draft;
  }
  if (speculation.method == DraftMethod::kMedusa) {
    ASSIGN_OR_RETURN(draft.medusa, ReadMedusaConfig(speculation.model, target));
    if (speculation.num_speculative_tokens > draft.medusa->num_heads) {
      return InvalidArgumentError(
          "num_speculative_tokens is " + std::to_string(speculation.num_speculative_tokens) +
          ", must be at most the number of heads, " + std::to_string(draft.medusa->num_heads));
    }
    draft.config = target;
    draft.config.num_layers = 0;
    draft.config.recurrent = {};
    draft.config.quantization = {};
    return draft;
  }
  if (speculation.method == DraftMethod::kMtp) {
    ASSIGN_OR_RETURN(draft.config, MtpConfig(target));
    draft.mtp_layer = target.num_layers;
    return draft;
  }
  const EagleVersion version =
      speculation.method == DraftMethod::kEagle3 ? EagleVersion::kEagle3 : EagleVersion::kEagle;
  ASSIGN_OR_RETURN(draft.eagle, ReadEagleConfig(speculation.model, version, target));
  draft.config = draft.eagle->layer;
  return draft;
}

int32_t DraftPositions(const ModelConfig& draft, const SpeculativeConfig& speculation,
                       const ExecutorLimits& limits) {
  const int64_t longest =
      std::min(draft.max_position_embeddings,
               int64_t{speculation.max_model_len.value_or(std::numeric_limits<int32_t>::max())});
  return static_cast<int32_t>(std::min(longest, int64_t{limits.max_model_len}));
}

// Those of the target's tables that the drafter lacks, where this rank has a part of them; else
// null.
StatusOr<std::unique_ptr<Model>> CopyTables(const DraftModelConfig& draft, const Weights& weights,
                                            const WeightFormats& formats, const DraftTarget& target,
                                            Backend* backend) {
  if (target.weights == nullptr) return std::unique_ptr<Model>();
  bool embedding = draft.mtp_layer > 0, head = draft.mtp_layer > 0;
  if (draft.eagle) {
    embedding = !weights.Has("embed_tokens.weight");
    head = draft.eagle->version == EagleVersion::kEagle && !weights.Has("lm_head.weight");
  } else if (draft.medusa) {
    head = draft.medusa->has_target_tables;
  }
  if (!embedding && !head) return std::unique_ptr<Model>();
  const ModelLimits no_steps;
  return LoadTables({*target.config, no_steps, *target.weights, *backend, formats}, embedding,
                    head);
}

StatusOr<std::unique_ptr<DraftHead>> LoadHead(const DraftModelConfig& config,
                                              const LoadContext& context, const Model& target) {
  std::unique_ptr<DraftHead> head;
  if (config.eagle) {
    ASSIGN_OR_RETURN(head, EagleHead::Load(context, *config.eagle, target));
  } else {
    ASSIGN_OR_RETURN(head, MtpHead::Load(context, config.mtp_layer, target));
  }
  return head;
}

}  // namespace

ModelConfig DraftModelConfig::PlannedConfig() const {
  ModelConfig planned = config;
  if (copies_tables && (eagle || mtp_layer > 0)) return planned;
  if (eagle) {
    planned.vocab_size = eagle->draft_vocab_size;
  } else if (medusa) {
    planned.vocab_size = config.vocab_size * (medusa->has_target_tables ? 1 : medusa->num_heads);
  } else if (mtp_layer > 0) {
    planned.vocab_size = 1;  // its tables are the target's
  } else {
    return planned;
  }
  planned.tie_word_embeddings = true;
  return planned;
}

StatusOr<std::optional<DraftModelConfig>> ReadDraftModelConfig(
    const ModelConfig& target, const SpeculativeConfig& speculation) {
  if (!speculation.has_model()) return std::optional<DraftModelConfig>();
  StatusOr<DraftModelConfig> draft = ReadConfig(target, speculation);
  if (!draft.ok()) return draft.status().WithContext("--speculative-config: model");
  RETURN_IF_ERROR(CheckDraftModel(target, draft->config, speculation));
  return std::optional<DraftModelConfig>(*std::move(draft));
}

StatusOr<DraftModel> LoadDraftModel(const DraftModelConfig& config,
                                    const SpeculativeConfig& speculation,
                                    const ExecutorLimits& limits, const WeightFormats& formats,
                                    const DraftTarget& target, Weights* weights, Backend* backend) {
  DraftModel draft = {.model = nullptr,
                      .head = nullptr,
                      .medusa = nullptr,
                      .tables = nullptr,
                      .config = config.config,
                      .max_positions = DraftPositions(config.config, speculation, limits),
                      .draws = speculation.draws_drafts};
  ModelLimits model_limits = ModelLimitsOf(limits);
  model_limits.max_positions = draft.max_positions;
  const LoadContext context = {draft.config, model_limits, *weights, *backend, formats};
  ASSIGN_OR_RETURN(draft.tables, CopyTables(config, *weights, formats, target, backend));
  const Model& tables = draft.tables != nullptr ? *draft.tables : target.model;
  if (config.medusa) {
    StatusOr<std::unique_ptr<MedusaHeads>> heads =
        MedusaHeads::Load(context, *config.medusa, tables);
    if (!heads.ok()) return heads.status().WithContext("--speculative-config: model");
    draft.medusa = *std::move(heads);
    return draft;
  }
  if (!config.eagle && config.mtp_layer == 0) {
    ASSIGN_OR_RETURN(draft.model, LoadModel(context));
    return draft;
  }
  StatusOr<std::unique_ptr<DraftHead>> head = LoadHead(config, context, tables);
  if (!head.ok()) return head.status().WithContext("--speculative-config: model");
  draft.head = *std::move(head);
  return draft;
}

}  // namespace tandem
