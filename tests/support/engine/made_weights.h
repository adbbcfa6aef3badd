#pragma once

// Weights of any name and shape whose values depend only on (seed, name, index), exact in bf16:
// tests/golden/made_models/make.py makes the same ones for transformers. Larger than
// MakeDummyWeights', so that each part of a small model matters. Vectors, and matrices whose names
// contain "norm", are near 1. Thread: the test's.

#include <cstdint>
#include <memory>

#include "engine_core/weights/safetensors.h"

namespace tandem {

std::unique_ptr<Weights> MakeMadeWeights(uint64_t seed);

}  // namespace tandem
