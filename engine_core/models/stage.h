#pragma once

// A run of a model's layers: takes the hidden states that the previous stage left and returns its
// own, so that a pipeline is a loop over stages. The first stage embeds the tokens, the last one
// makes logits. A layer is an object with a Run of its own: an architecture writes one, or loads
// the layer of another.
// Thread, ownership: as Model. Shapes: T tokens of a step, H hidden.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine_core/models/decoder.h"
#include "engine_core/models/kv_scales.h"
#include "engine_core/models/load_context.h"

namespace tandem {

// The hidden states between two layers, for a head that drafts from them.
struct StateTap {
  int num_layers = 0;  // of the model, before it; 0: the embeddings
  Tensor out;          // [T, H] act; columns of a wider tensor
};
// As many taps as layers, side by side in `states`: [T, layers * H] act.
void SetTaps(std::span<const int> layers, const Tensor& states, std::vector<StateTap>* taps);

// Where a layer's keys and values are.
struct KvPlace {
  int layer = 0;  // of the cache
  int group = 0;  // of layers, whose blocks it has
};

struct ModelStep {
  Tensor token_ids;                             // [T] i32, in backend memory
  Tensor token_types = {};                      // [T] i32, of models that have types
  std::span<const EmbeddedRows> embedded = {};  // rows that have no token id
  const AttentionPlan* plan = nullptr;
  // Of the groups of layers from the second on; the tokens are the same.
  std::span<const std::unique_ptr<AttentionPlan>> other_plans = {};
  const KvCache* kv_cache = nullptr;
  // By layer of the model. Empty: the cache's layers are the model's, in one group.
  std::span<const KvPlace> kv_places = {};
  // Where the hidden states are, [T, H] res: those that the stages of earlier ranks have left
  // there, or room for the first stage's. Empty: the model's own memory.
  Tensor hidden = {};
  // Likewise what tokens bring to all layers, [T, L I] res, of models where they do (LayerInputs).
  Tensor layer_inputs = {};
  const StepAdapters* adapters = nullptr;  // null: no token has one
  // Filled by Forward; of a rank's part of the model those between its layers, the last one's end
  // included.
  std::span<const StateTap> taps = {};
  // Which of the steps in flight this is, below the number of stages: for Model::TakeInDrafts.
  int turn = 0;

  const AttentionPlan& PlanOf(int group) const {
    return group == 0 ? *plan : *other_plans[static_cast<size_t>(group - 1)];
  }

  // ---- of models with a vision tower; may be empty in a step without images ----
  // What is added to rows after the first layers, layer by layer: [n, levels * H].
  std::span<const EmbeddedRows> deepstack = {};
  // [3, T] i32, contiguous: the time, height and width that turn each token's queries and keys,
  // each below ModelLimits::max_positions. Three equal numbers turn as that position.
  Tensor mrope_positions = {};
  // [T] i32: AttentionOptions::last_seen of all layers.
  Tensor last_seen = {};
};

class Layer {
 public:
  virtual ~Layer() = default;
  // decoder->residual() += what the layer computes from it.
  virtual void Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const = 0;
};

class Stage {
 public:
  using LayerLoader = std::function<StatusOr<std::unique_ptr<Layer>>(const LayerPlace&)>;

  // Loads the layers of context.stage, with the embedding if it is the first and the head if it is
  // the last.
  static StatusOr<std::unique_ptr<Stage>> Load(const LoadContext& context, DecoderOptions options,
                                               const LayerLoader& load_layer);

  int num_layers() const { return static_cast<int>(layers_.size()); }

  // The hidden states after this stage's layers, [T, H] res, valid until the next call. The keys
  // and values of its layers are those of the cache from `first_layer` on. `hidden` is what the
  // previous stage returned, in backend memory, and is overwritten; for the first stage it is only
  // room, or empty.
  Tensor Forward(const ModelStep& step, int first_layer, const Tensor& hidden);
  // As Model::Logits.  REQUIRES: the last stage.
  void Logits(const Tensor& logits, const Tensor& rows) { decoder_.Logits(logits, rows); }
  Decoder& decoder() { return decoder_; }

 private:
  Stage(Decoder decoder, std::vector<std::unique_ptr<Layer>> layers,
        std::vector<KvScales> kv_scales, int64_t begin, bool is_first)
      : decoder_(std::move(decoder)),
        layers_(std::move(layers)),
        kv_scales_(std::move(kv_scales)),
        begin_(begin),
        is_first_(is_first) {}

  Decoder decoder_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<KvScales> kv_scales_;  // of the layers
  int64_t begin_;                    // the first one's place in the model
  bool is_first_;
};

}  // namespace tandem
