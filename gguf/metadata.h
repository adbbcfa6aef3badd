#pragma once

// The keys of a GGUF file with their values, read by the type that the caller needs.
// Thread: immutable; any thread. Ownership: views of the file's mapping, which must outlive it.
// Failure: a key that is absent gives the fallback; one of another type, or a number that the type
// does not hold, is INVALID_ARGUMENT with the key's name.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

// Numbers of the format.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12
};

// Bytes of a value; 0 for strings, arrays and numbers that are no type.
size_t GgufValueBytes(GgufValueType type);

struct GgufValue {
  GgufValueType type;  // of the value, or of an array's elements
  bool is_array = false;
  uint64_t count = 1;                // elements of an array
  std::span<const std::byte> bytes;  // as the file has them: strings with their lengths
};

class GgufMetadata {
 public:
  // False when the key is there already.
  bool Add(std::string_view key, const GgufValue& value);
  bool Has(std::string_view key) const { return values_.find(key) != values_.end(); }

  StatusOr<int64_t> Integer(std::string_view key, int64_t fallback) const;
  StatusOr<double> Number(std::string_view key, double fallback) const;
  StatusOr<bool> Bool(std::string_view key, bool fallback) const;
  StatusOr<std::string_view> String(std::string_view key, std::string_view fallback) const;
  // Arrays; empty when the key is absent.
  StatusOr<std::vector<int64_t>> Integers(std::string_view key) const;
  StatusOr<std::vector<double>> Numbers(std::string_view key) const;
  StatusOr<std::vector<std::string_view>> Strings(std::string_view key) const;
  // An array of bytes (uint8 or int8).
  StatusOr<std::string_view> Bytes(std::string_view key) const;

  // By name.
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }

 private:
  const GgufValue* Find(std::string_view key) const;
  std::map<std::string, GgufValue, std::less<>> values_;
};

}  // namespace tandem
