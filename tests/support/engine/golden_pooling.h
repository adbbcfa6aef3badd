#pragma once

// Vectors and scores of models of the set `embedding`, whose folders have goldens.json and
// outputs.safetensors, against the numbers of transformers and sentence-transformers.
// Thread: the test's. Failure: Catch's checks.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/engine/engine_driver.h"

namespace tandem {

EngineDriverOptions PooledOptionsOf(const std::string& folder, const nlohmann::json& goldens);

// The results of every case of a model, all at once.
std::vector<std::vector<float>> PoolWith(EngineDriver& engine, const nlohmann::json& cases,
                                         std::optional<int64_t> dimensions = std::nullopt);
std::vector<std::vector<float>> PoolAll(const EngineDriverOptions& options,
                                        const nlohmann::json& cases,
                                        std::optional<int64_t> dimensions = std::nullopt);

// In float32 they are equal, in bfloat16 near.
void CheckPooled(const EngineDriverOptions& options, const nlohmann::json& goldens);

}  // namespace tandem
