#pragma once

// Plain values to bytes and back, for files and memory that this build both writes and reads:
// numbers as they lie in memory or as varints, strings with their length. The writer fills memory
// that is given to it and never allocates; what does not fit is left out and makes fits() false.
// The reader checks every length; after a mistake it returns zeros and empty strings, and ok() is
// false. Thread: any one.

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace tandem {

class ByteWriter {
 public:
  explicit ByteWriter(std::span<char> memory) : memory_(memory) {}

  template <class T>
  void Fixed(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    Copy(&value, sizeof value);
  }
  void Varint(uint64_t value) {
    while (value >= 0x80) {
      Byte(static_cast<uint8_t>(value | 0x80));
      value >>= 7;
    }
    Byte(static_cast<uint8_t>(value));
  }
  // Small numbers of either sign are short.
  void Signed(int64_t value) {
    Varint((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  void Bytes(std::string_view bytes) {
    Varint(bytes.size());
    Copy(bytes.data(), bytes.size());
  }
  template <class T>
  void List(std::span<const T> values) {
    Varint(values.size());
    for (const T value : values) Signed(static_cast<int64_t>(value));
  }

  bool fits() const { return fits_; }
  size_t size() const { return size_; }

 private:
  void Byte(uint8_t value) {
    if (size_ < memory_.size()) {
      memory_[size_++] = static_cast<char>(value);
    } else {
      fits_ = false;
    }
  }
  void Copy(const void* bytes, size_t count) {
    if (count == 0) return;
    if (memory_.size() - size_ < count) {
      fits_ = false;
      return;
    }
    std::memcpy(memory_.data() + size_, bytes, count);
    size_ += count;
  }

  std::span<char> memory_;
  size_t size_ = 0;
  bool fits_ = true;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  template <class T>
  T Fixed() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const std::string_view bytes = Take(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::string_view byte = Take(1);
      if (byte.empty()) return 0;
      const auto bits = static_cast<uint8_t>(byte[0]);
      value |= static_cast<uint64_t>(bits & 0x7f) << shift;
      if (bits < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  int64_t Signed() {
    const uint64_t bits = Varint();
    return static_cast<int64_t>((bits >> 1) ^ (~(bits & 1) + 1));
  }
  std::string_view Bytes() { return Take(Varint()); }
  // The number of values of a list, each of which takes a byte at least.
  size_t Count() {
    const uint64_t count = Varint();
    if (count <= left_.size()) return static_cast<size_t>(count);
    ok_ = false;
    return 0;
  }
  template <class Container>
  void List(Container* values) {
    values->clear();
    for (size_t left = Count(); left > 0 && ok_; --left) {
      values->push_back(static_cast<typename Container::value_type>(Signed()));
    }
  }

  void Skip(uint64_t count) { Take(count); }

  bool ok() const { return ok_; }
  bool empty() const { return left_.empty(); }
  size_t num_left() const { return left_.size(); }
  void Fail() { ok_ = false; }

 private:
  std::string_view Take(uint64_t count) {
    if (!ok_ || count > left_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = left_.substr(0, static_cast<size_t>(count));
    left_.remove_prefix(static_cast<size_t>(count));
    return taken;
  }

  std::string_view left_;
  bool ok_ = true;
};

}  // namespace tandem
