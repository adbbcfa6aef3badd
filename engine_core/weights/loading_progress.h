#pragma once

// Weights that report how far a loader is, every few seconds: a large model takes minutes. A
// loader asks for tensors layer by layer, so the last one shows how many are done.
// Thread: the loader's. Failure: none of its own.

#include <functional>
#include <memory>
#include <string>

#include "common/clock.h"
#include "engine_core/weights/safetensors.h"
#include "kernels/slice.h"

namespace tandem {

// layers: those that the loader loads, of a stage its own. report gets "layer 12 of 80, 4.2 GiB
// read, 1.05 GiB/s, 0:23 left". The clock outlives the result.
std::unique_ptr<Weights> WithProgress(std::unique_ptr<Weights> weights, Slice layers,
                                      const Clock* clock,
                                      std::function<void(const std::string&)> report);

}  // namespace tandem
