#pragma once

// The layer that a checkpoint has after the model's own, trained to predict one token further
// ahead:
//   s = layer(joined [norm embedding, norm state]),   logits = head norm(s)
// with a layer of the model's kind, the target's embedding and head, and the target's state after
// its last norm. Where it is a numbered layer of the model, the embedding at position 0 counts as
// zero. Where it has a place of its own (Qwen3-Next, Qwen3.5), it has attention, not a state, and
// goes on from norm(s), as from the target's states.
// Thread, ownership: as DraftHead.
// Sources: DeepSeek-AI 2024 (DeepSeek-V3); vLLM's deepseek_mtp, glm4_moe_mtp and qwen3_next_mtp
// name the tensors.

#include <memory>
#include <string>

#include "engine_core/models/draft_head.h"
#include "engine_core/models/layers.h"
#include "engine_core/models/model.h"

namespace tandem {

// Of the layer, as if it were a model. UNIMPLEMENTED where the target's layers cannot stand alone.
StatusOr<ModelConfig> MtpConfig(const ModelConfig& target);

// Whether the layer is no numbered one.
bool IsMtpApart(const ModelConfig& config);

// Of its tensors.
struct MtpNames {
  std::string layer, joined, embedding_norm, state_norm, output_norm;
};

class MtpHead final : public DraftHead {
 public:
  // context: of MtpConfig; the weights are the target's, which has `num_layers` layers before this
  // one. Failure: INVALID_ARGUMENT where the checkpoint has no such layer.
  static StatusOr<std::unique_ptr<MtpHead>> Load(const LoadContext& context, int64_t num_layers,
                                                 const Model& target);

  void Forward(const HeadStep& step) override;
  void Logits(const Tensor& logits, const Tensor& rows) override;
  std::span<const int> state_layers() const override { return {}; }

 private:
  MtpHead(const LoadContext& context, const Model& target)
      : ops_(&context.backend.ops()),
        epsilon_(static_cast<float>(context.config.rms_norm_eps)),
        hidden_(context.config.hidden_size),
        is_apart_(IsMtpApart(context.config)),
        embedding_(&target.embedding_table()),
        head_(&target.head()) {}

  Status LoadParts(const LoadContext& context, const MtpNames& names);
  Tensor RowsOf(const OwnedTensor& buffer) const { return buffer.view().Rows(0, num_tokens_); }

  Ops* ops_;
  float epsilon_;
  int64_t hidden_;
  bool is_apart_;
  const PackedMatrix* embedding_;
  const PackedMatrix* head_;
  NormLayer embedding_norm_, state_norm_, output_norm_;
  LinearLayer joined_;  // [H, 2 H]
  std::unique_ptr<Stage> layer_;

  OwnedTensor is_embedded_;  // [positions, 1] f32: 0 of the first, which reads no token; else 1
  int64_t num_tokens_ = 0;   // of this pass
  HeadMemory memory_;
};

}  // namespace tandem
