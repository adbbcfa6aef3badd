#include "gguf/metadata.h"

#include <cmath>
#include <cstring>
#include <optional>

namespace tandem {
namespace {

Status WrongType(std::string_view key, const char* wanted) {
  return InvalidArgumentError("key " + std::string(key) + " must be " + wanted);
}

template <class T>
T ReadAt(const GgufValue& value, uint64_t i) {
  T number;
  std::memcpy(&number, value.bytes.data() + i * sizeof number, sizeof number);
  return number;
}

// nullopt: not an integer, or above INT64_MAX.
std::optional<int64_t> IntegerAt(const GgufValue& value, uint64_t i) {
  switch (value.type) {
    case GgufValueType::kUint8:
      return ReadAt<uint8_t>(value, i);
    case GgufValueType::kInt8:
      return ReadAt<int8_t>(value, i);
    case GgufValueType::kUint16:
      return ReadAt<uint16_t>(value, i);
    case GgufValueType::kInt16:
      return ReadAt<int16_t>(value, i);
    case GgufValueType::kUint32:
      return ReadAt<uint32_t>(value, i);
    case GgufValueType::kInt32:
      return ReadAt<int32_t>(value, i);
    case GgufValueType::kInt64:
      return ReadAt<int64_t>(value, i);
    case GgufValueType::kUint64: {
      const auto number = ReadAt<uint64_t>(value, i);
      if (number > uint64_t{INT64_MAX}) return std::nullopt;
      return static_cast<int64_t>(number);
    }
    default:
      return std::nullopt;
  }
}

// nullopt: not a number, or not a finite one.
std::optional<double> NumberAt(const GgufValue& value, uint64_t i) {
  double number = 0;
  if (value.type == GgufValueType::kFloat32) {
    number = static_cast<double>(ReadAt<float>(value, i));
  } else if (value.type == GgufValueType::kFloat64) {
    number = ReadAt<double>(value, i);
  } else if (const auto integer = IntegerAt(value, i)) {
    number = static_cast<double>(*integer);
  } else {
    return std::nullopt;
  }
  return std::isfinite(number) ? std::optional<double>(number) : std::nullopt;
}

template <class T>
using Reader = std::optional<T> (*)(const GgufValue&, uint64_t);

template <class T>
StatusOr<T> OneOf(const GgufValue* value, std::string_view key, T fallback, Reader<T> read,
                  const char* wanted) {
  if (value == nullptr) return fallback;
  const std::optional<T> number = value->is_array ? std::nullopt : read(*value, 0);
  if (!number) return WrongType(key, wanted);
  return *number;
}

template <class T>
StatusOr<std::vector<T>> AllOf(const GgufValue* value, std::string_view key, Reader<T> read,
                               const char* wanted) {
  std::vector<T> numbers;
  if (value == nullptr) return numbers;
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<T> number = value->is_array ? read(*value, i) : std::nullopt;
    if (!number) return WrongType(key, wanted);
    numbers.push_back(*number);
  }
  return numbers;
}

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

size_t GgufValueBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  return 0;
}

bool GgufMetadata::Add(std::string_view key, const GgufValue& value) {
  return values_.emplace(std::string(key), value).second;
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

StatusOr<int64_t> GgufMetadata::Integer(std::string_view key, int64_t fallback) const {
  return OneOf<int64_t>(Find(key), key, fallback, IntegerAt, "an integer");
}

StatusOr<double> GgufMetadata::Number(std::string_view key, double fallback) const {
  return OneOf<double>(Find(key), key, fallback, NumberAt, "a number");
}

StatusOr<bool> GgufMetadata::Bool(std::string_view key, bool fallback) const {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return fallback;
  if (value->is_array || value->type != GgufValueType::kBool) return WrongType(key, "a bool");
  return ReadAt<uint8_t>(*value, 0) != 0;
}

StatusOr<std::string_view> GgufMetadata::String(std::string_view key,
                                                std::string_view fallback) const {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return fallback;
  if (value->is_array || value->type != GgufValueType::kString) return WrongType(key, "a string");
  return TextOf(value->bytes.subspan(sizeof(uint64_t)));
}

StatusOr<std::vector<int64_t>> GgufMetadata::Integers(std::string_view key) const {
  return AllOf<int64_t>(Find(key), key, IntegerAt, "an array of integers");
}

StatusOr<std::vector<double>> GgufMetadata::Numbers(std::string_view key) const {
  return AllOf<double>(Find(key), key, NumberAt, "an array of numbers");
}

StatusOr<std::vector<std::string_view>> GgufMetadata::Strings(std::string_view key) const {
  std::vector<std::string_view> strings;
  const GgufValue* const value = Find(key);
  if (value == nullptr) return strings;
  if (!value->is_array || value->type != GgufValueType::kString) {
    return WrongType(key, "an array of strings");
  }
  std::span<const std::byte> left = value->bytes;
  for (uint64_t i = 0; i < value->count; ++i) {
    uint64_t size = 0;
    std::memcpy(&size, left.data(), sizeof size);
    strings.push_back(TextOf(left.subspan(sizeof size, size)));
    left = left.subspan(sizeof size + size);
  }
  return strings;
}

StatusOr<std::string_view> GgufMetadata::Bytes(std::string_view key) const {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return std::string_view();
  const bool is_bytes = value->type == GgufValueType::kUint8 || value->type == GgufValueType::kInt8;
  if (!value->is_array || !is_bytes) return WrongType(key, "an array of bytes");
  return TextOf(value->bytes);
}

}  // namespace tandem
