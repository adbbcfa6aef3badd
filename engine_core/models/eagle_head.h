#pragma once

// The head of EAGLE and EAGLE-3: one llama layer that guesses a token from the one before it and
// from hidden states, the target's or, where the target has none yet, its own.
//   eagle:   s = layer(fc [embedding, state]), without the layer's first norm; logits = head s
//   eagle3:  h = fc states (own states as they are); s = layer(h), whose attention reads
//            [norm embedding, norm h]; logits = head norm(s), over a part of the vocabulary
// Embeddings are the target's unless the file has its own, and so is eagle's head.
// Thread, ownership: as DraftHead.
// Sources: Li et al. 2024, 2025; vLLM's llama_eagle and llama_eagle3 name the tensors.

#include <memory>
#include <vector>

#include "engine_core/models/decoder.h"
#include "engine_core/models/draft_head.h"
#include "engine_core/models/eagle_config.h"
#include "engine_core/models/model.h"

namespace tandem {

class EagleHead final : public DraftHead {
 public:
  // context.config: config.layer. Failure: a tensor that is missing or has another shape; d2t with
  // an id that the target lacks.
  static StatusOr<std::unique_ptr<EagleHead>> Load(const LoadContext& context,
                                                   const EagleConfig& config, const Model& target);

  void Forward(const HeadStep& step) override;
  void Logits(const Tensor& logits, const Tensor& rows) override;
  std::span<const int> state_layers() const override { return config_.state_layers; }

 private:
  EagleHead(const EagleConfig& config, Backend* backend, Decoder decoder)
      : config_(config),
        ops_(&backend->ops()),
        epsilon_(static_cast<float>(config.layer.rms_norm_eps)),
        decoder_(std::move(decoder)) {}

  bool is_eagle3() const { return config_.version == EagleVersion::kEagle3; }
  Status LoadMatrices(const LoadContext& context, const Model& target);
  Status LoadIds(const LoadContext& context);
  Status LoadEagle3(const LoadContext& context);
  Status Allocate(const LoadContext& context);
  // taken: of HeadMemory::TakeStates.
  void ForwardEagle(const Tensor& taken);
  void ForwardEagle3(const Tensor& taken, bool is_own);
  Tensor RowsOf(const OwnedTensor& buffer) const { return buffer.view().Rows(0, num_tokens_); }

  EagleConfig config_;
  Ops* ops_;
  float epsilon_;
  Decoder decoder_;            // what the layer runs on; no embedding or head of its own
  LinearLayer fc_;             // [H, 2 H], of eagle3 [H, state_width]
  LinearLayer own_embedding_;  // null: the target's
  LinearLayer own_head_;       // [draft V, H]; null: the target's
  const PackedMatrix* embedding_ = nullptr;
  const PackedMatrix* head_ = nullptr;
  AttentionLayer attention_;
  NormLayer input_norm_, state_norm_, output_norm_;  // of eagle3
  NormLayer post_attention_norm_;
  MlpLayer mlp_;
  // [V] i32: of each of the target's ids, its place in the draft vocabulary, or -1. Empty: the
  // vocabularies are the same.
  OwnedTensor places_;

  int64_t num_tokens_ = 0;  // of this pass
  HeadMemory memory_;
  OwnedTensor draft_logits_;  // [max_logits_rows, draft V] f32, with places_
};

}  // namespace tandem
