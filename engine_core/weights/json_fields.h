#pragma once

// Reads single keys of a JSON object, with the value and what is allowed in every refusal.
// Thread: any; pure. A key that is absent or null leaves *out as it is: HF writes both for "not
// set".

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/status.h"

namespace tandem {

// Null when the key is absent or its value is null.
const nlohmann::json* Find(const nlohmann::json& json, const char* key);

Status BadValue(const char* key, const nlohmann::json& value, const std::string& allowed);

// An integer in [1, max]; a `fallback` < 0 makes the key required.
Status ReadSize(const nlohmann::json& json, const char* key, int64_t max, int64_t fallback,
                int64_t* out);
// A finite number > 0.
Status ReadPositive(const nlohmann::json& json, const char* key, double* out);
// A list of such numbers.
Status ReadPositives(const nlohmann::json& json, const char* key, std::vector<double>* out);
Status ReadBool(const nlohmann::json& json, const char* key, bool* out);
Status ReadString(const nlohmann::json& json, const char* key, std::string* out);

}  // namespace tandem
