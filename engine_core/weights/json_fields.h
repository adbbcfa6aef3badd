#pragma once

// Reads single keys of a JSON object.
// Thread: any; pure. A key that is absent or null leaves *out unchanged: HF writes both for "not
// set". Failure: InvalidArgument with the key, its value and what is allowed.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/status.h"

namespace tandem {

// Null when the key is absent or its value is null.
const nlohmann::json* Find(const nlohmann::json& json, const char* key);

Status BadValue(const char* key, const nlohmann::json& value, const std::string& allowed);

// An integer in [1, max]. Sets *out to `fallback` when the key is absent; a `fallback` below 0
// makes the key required.
Status ReadSize(const nlohmann::json& json, const char* key, int64_t max, int64_t fallback,
                int64_t* out);
// An integer in [0, max].
Status ReadCount(const nlohmann::json& json, const char* key, int64_t max, int64_t* out);
// A finite number > 0.
Status ReadPositive(const nlohmann::json& json, const char* key, double* out);
// A list of finite numbers > 0.
Status ReadPositives(const nlohmann::json& json, const char* key, std::vector<double>* out);
Status ReadBool(const nlohmann::json& json, const char* key, bool* out);
Status ReadString(const nlohmann::json& json, const char* key, std::string* out);

}  // namespace tandem
