#pragma once

// JSON files of a model folder, read without exceptions. Thread: any; pure but for the file system.
// Failure: NotFound when there is no such file, InvalidArgument for text that is no JSON object,
// nested deeper than 32 or larger than 100 MB.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem {

StatusOr<std::string> ReadTextFile(const std::string& path);
StatusOr<nlohmann::json> ParseJsonObject(std::string_view text);

}  // namespace tandem
