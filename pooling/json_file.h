#pragma once

// The JSON files beside a model's weights, where Python may have written Infinity.
// Thread: any; values.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem {

// INVALID_ARGUMENT with the name of what is not JSON.
StatusOr<nlohmann::json> ParseModelJson(const std::string& name, std::string_view text);
// null when there is no such file.
StatusOr<nlohmann::json> ReadModelJson(const std::string& path);

}  // namespace tandem
