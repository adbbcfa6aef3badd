#include "gguf/key_file.h"

#include <cstdint>
#include <string_view>

namespace tandem {
namespace {

constexpr uint32_t kVersion = 3;

template <class T>
void Append(T number, std::string* out) {
  out->append(reinterpret_cast<const char*>(&number), sizeof number);
}

bool IsKept(std::string_view key) { return !key.starts_with("split."); }

}  // namespace

std::string GgufKeyFile(const GgufMetadata& metadata) {
  uint64_t num_keys = 0;
  for (const auto& [key, value] : metadata.values()) num_keys += IsKept(key) ? 1 : 0;
  std::string out = "GGUF";
  Append(kVersion, &out);
  Append(uint64_t{0}, &out);  // tensors
  Append(num_keys, &out);
  for (const auto& [key, value] : metadata.values()) {
    if (!IsKept(key)) continue;
    Append(uint64_t{key.size()}, &out);
    out += key;
    if (value.is_array) Append(GgufValueType::kArray, &out);
    Append(value.type, &out);
    if (value.is_array) Append(value.count, &out);
    out.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
  }
  return out;
}

}  // namespace tandem
