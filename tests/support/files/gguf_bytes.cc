#include "tests/support/files/gguf_bytes.h"

namespace tandem {
namespace {

constexpr uint32_t kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9;

template <class T>
std::string ArrayOf(uint32_t type, const std::vector<T>& numbers) {
  std::string bytes = RawBytes(type) + RawBytes(uint64_t{numbers.size()});
  for (const T number : numbers) bytes += RawBytes(number);
  return bytes;
}

}  // namespace

std::string GgufString(std::string_view text) {
  return RawBytes(uint64_t{text.size()}) + std::string(text);
}

GgufBytes& GgufBytes::Raw(std::string_view key, uint32_t type, std::string_view bytes) {
  ++num_keys_;
  keys_ += GgufString(key) + RawBytes(type) + std::string(bytes);
  return *this;
}

GgufBytes& GgufBytes::String(std::string_view key, std::string_view text) {
  return Raw(key, kString, GgufString(text));
}

GgufBytes& GgufBytes::Integer(std::string_view key, uint32_t number) {
  return Raw(key, kUint32, RawBytes(number));
}

GgufBytes& GgufBytes::Float(std::string_view key, float number) {
  return Raw(key, kFloat32, RawBytes(number));
}

GgufBytes& GgufBytes::Bool(std::string_view key, bool value) {
  return Raw(key, kBool, RawBytes(uint8_t{value}));
}

GgufBytes& GgufBytes::Strings(std::string_view key, const std::vector<std::string>& texts) {
  std::string bytes = RawBytes(kString) + RawBytes(uint64_t{texts.size()});
  for (const std::string& text : texts) bytes += GgufString(text);
  return Raw(key, kArray, bytes);
}

GgufBytes& GgufBytes::Floats(std::string_view key, const std::vector<float>& numbers) {
  return Raw(key, kArray, ArrayOf(kFloat32, numbers));
}

GgufBytes& GgufBytes::Integers(std::string_view key, const std::vector<int32_t>& numbers) {
  return Raw(key, kArray, ArrayOf(kInt32, numbers));
}

GgufBytes& GgufBytes::Tensor(std::string_view name, uint32_t type,
                             const std::vector<uint64_t>& sizes, std::string_view bytes) {
  TensorAt(data_.size(), name, type, sizes);
  data_ += bytes;
  data_.resize((data_.size() + kAlignment - 1) / kAlignment * kAlignment);
  return *this;
}

GgufBytes& GgufBytes::TensorAt(uint64_t offset, std::string_view name, uint32_t type,
                               const std::vector<uint64_t>& sizes) {
  ++num_tensors_;
  tensors_ += GgufString(name) + RawBytes(static_cast<uint32_t>(sizes.size()));
  for (const uint64_t size : sizes) tensors_ += RawBytes(size);
  tensors_ += RawBytes(type) + RawBytes(offset);
  return *this;
}

std::string GgufBytes::Build() const {
  std::string file = "GGUF" + RawBytes(uint32_t{3}) + RawBytes(num_tensors_) + RawBytes(num_keys_) +
                     keys_ + tensors_;
  file.resize((file.size() + kAlignment - 1) / kAlignment * kAlignment);
  return file + data_;
}

}  // namespace tandem
