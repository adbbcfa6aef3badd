#pragma once

// Writes msgpack into one growing string: the values that a message is put together of, as vLLM's
// Python packs them. The caller keeps the counts of maps and arrays. Records of schema.h have their
// own way (codec_encode.cc), which writes into memory that it has already. Any thread.

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <msgpack.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace tandem::wire {

// pack_double would send 1.0 as the integer 1; Python never does.
inline std::array<char, 9> Float64Bytes(double value) {
  std::array<char, 9> bytes = {'\xcb'};
  const uint64_t big_endian = __builtin_bswap64(std::bit_cast<uint64_t>(value));
  std::memcpy(bytes.data() + 1, &big_endian, sizeof(big_endian));
  return bytes;
}

class MsgpackWriter {
 public:
  MsgpackWriter() = default;
  MsgpackWriter(const MsgpackWriter&) = delete;  // the packer refers to the sink
  MsgpackWriter& operator=(const MsgpackWriter&) = delete;

  std::string Take() { return std::move(sink_.bytes); }

  void Map(size_t size) { packer_.pack_map(static_cast<uint32_t>(size)); }
  void Array(size_t size) { packer_.pack_array(static_cast<uint32_t>(size)); }
  void Nil() { packer_.pack_nil(); }
  void Bool(bool value) { value ? packer_.pack_true() : packer_.pack_false(); }
  void Int(int64_t value) { packer_.pack_int64(value); }
  void Uint(uint64_t value) { packer_.pack_uint64(value); }
  void Float64(double value) {
    const std::array<char, 9> bytes = Float64Bytes(value);
    sink_.write(bytes.data(), bytes.size());
  }
  void String(std::string_view text) {
    packer_.pack_str(static_cast<uint32_t>(text.size()));
    packer_.pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
  }
  void Bytes(std::string_view bytes) {
    packer_.pack_bin(static_cast<uint32_t>(bytes.size()));
    packer_.pack_bin_body(bytes.data(), static_cast<uint32_t>(bytes.size()));
  }
  // A value that is packed.
  void Packed(std::string_view value) { sink_.write(value.data(), value.size()); }

 private:
  struct Sink {
    std::string bytes;
    void write(const char* data, size_t size) {  // NOLINT(readability-identifier-naming): msgpack's
      bytes.append(data, size);
    }
  };
  Sink sink_;
  msgpack::packer<Sink> packer_{sink_};
};

}  // namespace tandem::wire
