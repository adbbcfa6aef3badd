#include "proto_msgpack/msgpack_reader.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "common/strings.h"

namespace tandem::wire {
namespace {

constexpr int kPickle = 1;
constexpr int kCloudPickle = 2;

}  // namespace

Status MsgpackReader::status() const {
  if (ok()) return OkStatus();
  return InvalidArgumentError("msgpack byte " + std::to_string(failed_at_) + ": " + failure_);
}

bool MsgpackReader::NextIsArray() const {
  const int tag = Peek();
  return (tag >= 0x90 && tag <= 0x9f) || tag == 0xdc || tag == 0xdd;
}
bool MsgpackReader::NextIsMap() const {
  const int tag = Peek();
  return (tag >= 0x80 && tag <= 0x8f) || tag == 0xde || tag == 0xdf;
}
bool MsgpackReader::NextIsString() const {
  const int tag = Peek();
  return (tag >= 0xa0 && tag <= 0xbf) || (tag >= 0xd9 && tag <= 0xdb);
}
bool MsgpackReader::NextIsInt() const {
  const int tag = Peek();
  return (tag >= 0 && tag <= 0x7f) || tag >= 0xe0 || (tag >= 0xcc && tag <= 0xd3);
}

uint64_t MsgpackReader::Tail(size_t size) {
  if (left() < 1 + size) {
    Fail("the message is cut off");
    return 0;
  }
  uint64_t value = 0;
  for (size_t i = 1; i <= size; ++i) value = value << 8 | static_cast<uint8_t>(next_[i]);
  return value;
}

std::string_view MsgpackReader::Take(uint64_t header_bytes, uint64_t size) {
  if (!ok()) return {};
  if (left() < header_bytes || left() - header_bytes < size) {
    Fail("the message is cut off");
    return {};
  }
  const std::string_view bytes(next_ + header_bytes, size);
  next_ += header_bytes + size;
  return bytes;
}

bool MsgpackReader::Bool() {
  const int tag = Peek();
  if (tag != 0xc2 && tag != 0xc3) {
    Fail("expected true or false");
    return false;
  }
  ++next_;
  return tag == 0xc3;
}

uint64_t MsgpackReader::BitsOfInt() {
  const int tag = Peek();
  if (tag >= 0 && tag <= 0x7f) {
    ++next_;
    return static_cast<uint64_t>(tag);
  }
  if (tag >= 0xe0) {
    ++next_;
    return static_cast<uint64_t>(static_cast<int64_t>(tag) - 0x100);
  }
  if (tag < 0xcc || tag > 0xd3) {
    Fail("expected an integer");
    return 0;
  }
  const size_t size = size_t{1} << (tag & 3);
  uint64_t value = Tail(size);
  if (!ok()) return 0;
  next_ += 1 + size;
  if (tag >= 0xd0) {  // signed: widen
    const int shift = 64 - 8 * static_cast<int>(size);
    value = static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift);
  }
  return value;
}

int64_t MsgpackReader::Int() {
  const bool is_uint64 = Peek() == 0xcf;
  const uint64_t bits = BitsOfInt();
  if (is_uint64 && bits > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    Fail("integer out of range");
    return 0;
  }
  return static_cast<int64_t>(bits);
}

double MsgpackReader::Number() {
  const int tag = Peek();
  if (tag == 0xcb) {
    const uint64_t bits = Tail(8);
    if (!ok()) return 0;
    next_ += 9;
    return std::bit_cast<double>(bits);
  }
  if (tag == 0xca) {
    const auto bits = static_cast<uint32_t>(Tail(4));
    if (!ok()) return 0;
    next_ += 5;
    return static_cast<double>(std::bit_cast<float>(bits));
  }
  if (!NextIsInt()) {
    Fail("expected a number");
    return 0;
  }
  const bool is_uint64 = tag == 0xcf;
  const uint64_t bits = BitsOfInt();
  return is_uint64 ? static_cast<double>(bits) : static_cast<double>(static_cast<int64_t>(bits));
}

double MsgpackReader::FiniteNumber() {
  const double value = Number();
  if (!std::isfinite(value)) {
    Fail("expected a finite number");
    return 0;
  }
  return value;
}

std::string_view MsgpackReader::String() {
  const int tag = Peek();
  std::string_view text;
  if (tag >= 0xa0 && tag <= 0xbf) {
    text = Take(1, static_cast<uint64_t>(tag & 0x1f));
  } else if (tag >= 0xd9 && tag <= 0xdb) {
    const size_t size = size_t{1} << (tag - 0xd9);
    const uint64_t length = Tail(size);
    text = Take(1 + size, length);
  } else {
    Fail("expected a string");
  }
  if (FindInvalidUtf8(text) != std::string_view::npos) {
    Fail("expected UTF-8");
    return {};
  }
  return text;
}

uint32_t MsgpackReader::Sized(uint64_t count, size_t header_bytes, size_t min_bytes_each) {
  if (!ok()) return 0;
  if ((left() - header_bytes) / min_bytes_each < count) {
    Fail("more elements are announced than bytes are left");
    return 0;
  }
  next_ += header_bytes;
  return static_cast<uint32_t>(count);
}

uint32_t MsgpackReader::ArraySize() {
  const int tag = Peek();
  if (tag >= 0x90 && tag <= 0x9f) return Sized(static_cast<uint64_t>(tag & 0x0f), 1, 1);
  if (tag == 0xdc) return Sized(Tail(2), 3, 1);
  if (tag == 0xdd) return Sized(Tail(4), 5, 1);
  Fail("expected an array");
  return 0;
}

uint32_t MsgpackReader::MapSize() {
  const int tag = Peek();
  if (tag >= 0x80 && tag <= 0x8f) return Sized(static_cast<uint64_t>(tag & 0x0f), 1, 2);
  if (tag == 0xde) return Sized(Tail(2), 3, 2);
  if (tag == 0xdf) return Sized(Tail(4), 5, 2);
  Fail("expected a map");
  return 0;
}

std::string_view MsgpackReader::Ext(int8_t* type) {
  const int tag = Peek();
  uint64_t size_bytes = 0;
  uint64_t length = 0;
  if (tag >= 0xd4 && tag <= 0xd8) {
    length = uint64_t{1} << (tag - 0xd4);
  } else if (tag >= 0xc7 && tag <= 0xc9) {
    size_bytes = uint64_t{1} << (tag - 0xc7);
    length = Tail(size_bytes);
  } else {
    Fail("expected an Ext value");
  }
  const std::string_view typed = Take(1 + size_bytes, 1 + length);
  if (!ok()) return {};
  *type = static_cast<int8_t>(typed[0]);
  if (*type == kPickle || *type == kCloudPickle) {
    Fail("pickled values are refused");
    return {};
  }
  return typed.substr(1);
}

std::string_view MsgpackReader::Raw() {
  const char* const start = next_;
  std::array<uint64_t, kMaxDepth> open;  // values still to come at each level
  size_t depth = 0;
  open[0] = 1;
  while (ok()) {
    if (open[depth] == 0) {
      if (depth == 0) return {start, static_cast<size_t>(next_ - start)};
      --depth;
      continue;
    }
    --open[depth];
    uint64_t children = 0;
    const int tag = Peek();
    if (tag < 0) {
      Fail("the message is cut off");
    } else if (NextIsInt()) {
      BitsOfInt();
    } else if (NextIsArray()) {
      children = ArraySize();
    } else if (NextIsMap()) {
      children = 2 * uint64_t{MapSize()};
    } else if (tag >= 0xa0 && tag <= 0xbf) {
      Take(1, static_cast<uint64_t>(tag & 0x1f));
    } else if (tag >= 0xd9 && tag <= 0xdb) {
      const size_t size = size_t{1} << (tag - 0xd9);
      const uint64_t length = Tail(size);
      Take(1 + size, length);
    } else if (tag >= 0xc4 && tag <= 0xc6) {
      const size_t size = size_t{1} << (tag - 0xc4);
      const uint64_t length = Tail(size);
      Take(1 + size, length);
    } else if (tag == 0xc0 || tag == 0xc2 || tag == 0xc3) {
      ++next_;
    } else if (tag == 0xca || tag == 0xcb) {
      Number();
    } else if ((tag >= 0xc7 && tag <= 0xc9) || (tag >= 0xd4 && tag <= 0xd8)) {
      int8_t type;
      Ext(&type);
    } else {
      Fail("0xc1 is not msgpack");
    }
    if (children > 0) {
      if (++depth == kMaxDepth) {
        Fail("nested too deep");
        break;
      }
      open[depth] = children;
    }
  }
  return {};
}

}  // namespace tandem::wire
