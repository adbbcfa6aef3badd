#include "engine_core/weights/json_fields.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

using Json = nlohmann::json;

bool IsPositive(const Json& value) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
}

}  // namespace

const Json* Find(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it == json.end() || it->is_null() ? nullptr : &*it;
}

Status BadValue(const char* key, const Json& value, const std::string& allowed) {
  return InvalidArgumentError(std::string(key) + " is " + value.dump() + ", must be " + allowed);
}

Status ReadSize(const Json& json, const char* key, int64_t max, int64_t fallback, int64_t* out) {
  const Json* value = Find(json, key);
  if (value == nullptr) {
    if (fallback < 0) return InvalidArgumentError(std::string(key) + " is missing");
    *out = fallback;
    return OkStatus();
  }
  const bool fits =
      value->is_number_unsigned() && value->get<uint64_t>() <= static_cast<uint64_t>(max);
  if (!fits || value->get<int64_t>() < 1) {
    return BadValue(key, *value, "an integer in [1, " + std::to_string(max) + "]");
  }
  *out = value->get<int64_t>();
  return OkStatus();
}

Status ReadCount(const Json& json, const char* key, int64_t max, int64_t* out) {
  const Json* value = Find(json, key);
  if (value == nullptr) return OkStatus();
  if (!value->is_number_unsigned() || value->get<uint64_t>() > static_cast<uint64_t>(max)) {
    return BadValue(key, *value, "an integer in [0, " + std::to_string(max) + "]");
  }
  *out = value->get<int64_t>();
  return OkStatus();
}

Status ReadPositive(const Json& json, const char* key, double* out) {
  const Json* value = Find(json, key);
  if (value == nullptr) return OkStatus();
  if (!IsPositive(*value)) return BadValue(key, *value, "a number above 0");
  *out = value->get<double>();
  return OkStatus();
}

Status ReadPositives(const Json& json, const char* key, std::vector<double>* out) {
  const Json* value = Find(json, key);
  if (value == nullptr) return OkStatus();
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), IsPositive)) {
    return BadValue(key, *value, "a list of numbers above 0");
  }
  *out = value->get<std::vector<double>>();
  return OkStatus();
}

Status ReadBool(const Json& json, const char* key, bool* out) {
  const Json* value = Find(json, key);
  if (value == nullptr) return OkStatus();
  if (!value->is_boolean()) return BadValue(key, *value, "true or false");
  *out = value->get<bool>();
  return OkStatus();
}

Status ReadString(const Json& json, const char* key, std::string* out) {
  const Json* value = Find(json, key);
  if (value == nullptr) return OkStatus();
  if (!value->is_string()) return BadValue(key, *value, "a string");
  *out = value->get<std::string>();
  return OkStatus();
}

}  // namespace tandem
