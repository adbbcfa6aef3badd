#pragma once

// The greedy text of a golden model (tests/golden/models), over any backend.

#include <string>

#include "tests/support/engine/engine_driver.h"

namespace tandem {

// Runs the short prompts of the folder's goldens.json together, and compares the first tokens with
// the recorded ones, up to where the recorded logits hesitate. options: all but the model.
void CheckGreedyText(EngineDriverOptions options, const std::string& folder);

}  // namespace tandem
