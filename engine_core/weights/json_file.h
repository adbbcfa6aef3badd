#pragma once

// JSON files of a model folder, parsed without exceptions. Thread: any; pure.
// Failure: InvalidArgument for text that is not a JSON object or is nested deeper than 32.
// Of a key that an object has twice the last counts.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "common/status.h"

namespace tandem {

constexpr int64_t kMaxJsonFileBytes = 100'000'000;

StatusOr<nlohmann::json> ParseJsonObject(std::string_view text);
// InvalidArgument, which names it, for a key that an object has twice.
StatusOr<nlohmann::json> ParseJsonObjectOfDistinctKeys(std::string_view text);

}  // namespace tandem
