#include "engine_core/models/model.h"

#include <utility>

namespace tandem {

Model::Model(std::vector<std::unique_ptr<Stage>> stages) : stages_(std::move(stages)) {
  CHECK(!stages_.empty());
}

void Model::Forward(const ModelStep& step) {
  Tensor hidden = step.hidden;
  ModelStep of_stage = step;
  int first_layer = 0;
  for (const auto& stage : stages_) {
    hidden = stage->Forward(of_stage, first_layer, hidden);
    of_stage.layer_inputs = stage->decoder().layer_inputs();
    first_layer += stage->num_layers();
  }
}

void Model::Logits(const Tensor& logits, const Tensor& rows) {
  stages_.back()->Logits(logits, rows);
}

void Model::TakeInDrafts(const Tensor& drafts, int turn) {
  for (const auto& stage : stages_) stage->decoder().TakeInDrafts(drafts, turn);
}

}  // namespace tandem
