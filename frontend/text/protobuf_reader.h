#pragma once

// Walks the fields of one protobuf message, without its schema. Thread: one. Borrows the bytes.
// A malformed message ends the walk with ok() false; nothing outside the bytes is read.

#include <cstdint>
#include <cstring>
#include <string_view>

namespace tandem {

class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view message) : rest_(message) {}

  // Moves to the next field; false at the end, and where the message is malformed.
  bool Next() {
    uint64_t key = 0;
    if (rest_.empty() || !ReadVarint(&key)) return false;
    field_ = static_cast<uint32_t>(key >> 3);
    bytes_ = {};
    number_ = 0;
    switch (key & 7) {
      case 0:
        return ReadVarint(&number_);
      case 1:
        return Take(8);
      case 2: {
        uint64_t size = 0;
        return ReadVarint(&size) && Take(size);
      }
      case 5:
        return Take(4);
      default:
        return ok_ = false;
    }
  }

  uint32_t field() const { return field_; }
  uint64_t number() const { return number_; }  // of a varint
  bool boolean() const { return number_ != 0; }
  std::string_view bytes() const { return bytes_; }  // of a string, message, or fixed number
  float real() const {
    float value = 0;
    if (bytes_.size() == sizeof value) std::memcpy(&value, bytes_.data(), sizeof value);
    return value;
  }
  bool ok() const { return ok_; }

 private:
  bool ReadVarint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      *value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return ok_ = false;
  }
  bool Take(uint64_t size) {
    if (size > rest_.size()) return ok_ = false;
    bytes_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
  std::string_view bytes_;
  uint64_t number_ = 0;
  uint32_t field_ = 0;
  bool ok_ = true;
};

}  // namespace tandem
