#pragma once

// Writes GGUF files (version 3) for tests. Sizes are in the file's order, the fastest first.
// Thread: the test's.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

class GgufBytes {
 public:
  // A key with a value as the file has it.
  GgufBytes& Raw(std::string_view key, uint32_t type, std::string_view bytes);
  GgufBytes& String(std::string_view key, std::string_view text);
  GgufBytes& Integer(std::string_view key, uint32_t number);
  GgufBytes& Float(std::string_view key, float number);
  GgufBytes& Bool(std::string_view key, bool value);
  GgufBytes& Strings(std::string_view key, const std::vector<std::string>& texts);
  GgufBytes& Floats(std::string_view key, const std::vector<float>& numbers);
  GgufBytes& Integers(std::string_view key, const std::vector<int32_t>& numbers);
  GgufBytes& Tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& sizes,
                    std::string_view bytes);
  // The same at an offset that may be wrong.
  GgufBytes& TensorAt(uint64_t offset, std::string_view name, uint32_t type,
                      const std::vector<uint64_t>& sizes);

  std::string Build() const;

 private:
  static constexpr size_t kAlignment = 32;
  uint64_t num_keys_ = 0, num_tensors_ = 0;
  std::string keys_, tensors_, data_;
};

// The bytes of a value, or of a string with its length.
template <class T>
std::string RawBytes(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string GgufString(std::string_view text);

}  // namespace tandem
