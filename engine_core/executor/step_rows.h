#pragma once

// What a step has of the host beside its numbers (StepInputs): rows in the place of embeddings, and
// what images bring. Values over memory of others. Thread: engine loop.

#include <span>
#include <vector>

#include "engine_core/models/stage.h"

namespace tandem {

// As ModelStep has them; all may be empty.
struct StepRows {
  std::span<const EmbeddedRows> embedded = {}, deepstack = {};
  Tensor mrope_positions = {}, last_seen = {};

  void PutInto(ModelStep* step) const {
    step->embedded = embedded;
    step->deepstack = deepstack;
    step->mrope_positions = mrope_positions;
    step->last_seen = last_seen;
  }
};

// The same, with the lists of its own.
struct ListedStepRows {
  std::vector<EmbeddedRows> embedded = {}, deepstack = {};
  Tensor mrope_positions = {}, last_seen = {};

  StepRows view() const { return {embedded, deepstack, mrope_positions, last_seen}; }
};

}  // namespace tandem
