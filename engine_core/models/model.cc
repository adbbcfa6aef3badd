#include "engine_core/models/model.h"

#include <utility>

namespace tandem {

Model::Model(std::vector<std::unique_ptr<Stage>> stages) : stages_(std::move(stages)) {
  CHECK(!stages_.empty());
}

void Model::Forward(const ModelStep& step) {
  Tensor hidden = step.hidden;
  int first_layer = 0;
  for (const auto& stage : stages_) {
    hidden = stage->Forward(step, first_layer, hidden);
    first_layer += stage->num_layers();
  }
}

void Model::Logits(const Tensor& logits, const Tensor& rows) {
  stages_.back()->Logits(logits, rows);
}

void Model::TakeInDrafts(const Tensor& drafts) {
  for (const auto& stage : stages_) stage->decoder().TakeInDrafts(drafts);
}

}  // namespace tandem
