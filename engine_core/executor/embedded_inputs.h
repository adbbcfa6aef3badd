#pragma once

// The rows of a step that requests brought as embeddings, as float32 in memory from which the
// device copies them over what the embedding table made of the token ids there.
// Thread: engine loop. Owns: room for a step of such rows alone, from Create on.
// Failure: memory, in Create.

#include <span>
#include <vector>

#include "common/status.h"
#include "engine_core/executor/input_batch.h"
#include "engine_core/executor/step_layout.h"
#include "engine_core/models/stage.h"
#include "kernels/device.h"

namespace tandem {

class EmbeddedInputs {
 public:
  EmbeddedInputs() = default;
  static StatusOr<EmbeddedInputs> Create(Device* device, int64_t max_tokens, int64_t hidden_size);

  // Waits until the copies of the last step that had such rows are done. Cheap without any.
  void Fill(const StepLayout& layout, const InputBatch& batch);
  // Of the step, valid until the next Fill.
  std::span<const EmbeddedRows> rows() const { return rows_; }
  // The copies are on their way.
  void SetSent();

 private:
  Device* device_ = nullptr;
  OwnedTensor staging_;  // [max_tokens, H] f32
  std::vector<EmbeddedRows> rows_;
  int64_t sent_ = 0;  // mark
};

}  // namespace tandem
