#pragma once

// A cursor over packed msgpack. It reads values straight into the records: a tree of objects per
// message would cost more allocations than everything else on the wire thread.
// Thread: any one at a time. Does not own the bytes. String and Raw return views into them.
// Failure is sticky: the first wrong byte is remembered, every later read returns 0 or empty, and
// the caller checks status() once. Bounded: a count larger than the bytes that remain is refused
// before anything is sized by it; nesting is limited; pickled values (Ext 1 and 2) are refused.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/status.h"

namespace tandem::wire {

class MsgpackReader {
 public:
  static constexpr int kMaxDepth = 64;

  // aux_frames: the frames after the body, which arrays may point into.
  explicit MsgpackReader(std::string_view bytes, std::span<const std::string_view> aux_frames = {})
      : begin_(bytes.data()),
        next_(bytes.data()),
        end_(bytes.data() + bytes.size()),
        aux_frames_(aux_frames) {}

  bool ok() const { return failure_ == nullptr; }
  Status status() const;
  bool at_end() const { return next_ == end_; }
  // Only the first failure counts. what: a literal, "expected a string".
  void Fail(const char* what) {
    if (failure_ == nullptr) {
      failure_ = what;
      failed_at_ = static_cast<size_t>(next_ - begin_);
    }
  }

  // Consumes the next value if it is nil.
  bool TryNil() {
    if (!NextIs(0xc0)) return false;
    ++next_;
    return true;
  }
  bool NextIsArray() const;
  bool NextIsMap() const;
  bool NextIsString() const;
  bool NextIsInt() const;

  bool Bool();
  int64_t Int();
  // An integer that must lie in [low, high].
  int64_t IntIn(int64_t low, int64_t high) {
    const int64_t value = Int();
    if (value < low || value > high) Fail("integer out of range");
    return ok() ? value : low;
  }
  uint64_t BitsOfInt();       // any 64-bit integer; negative ones wrap around
  double Number();            // a float or an integer
  double FiniteNumber();      // neither NaN nor infinite
  std::string_view String();  // well-formed UTF-8
  uint32_t ArraySize();
  uint32_t MapSize();
  std::string_view Ext(int8_t* type);
  // One whole value, as its bytes.
  std::string_view Raw();
  void Skip() { Raw(); }

  std::span<const std::string_view> aux_frames() const { return aux_frames_; }

 private:
  size_t left() const { return static_cast<size_t>(end_ - next_); }
  bool NextIs(uint8_t byte) const {
    return ok() && next_ != end_ && static_cast<uint8_t>(*next_) == byte;
  }
  int Peek() const { return ok() && next_ != end_ ? static_cast<uint8_t>(*next_) : -1; }
  // The big-endian number of `size` bytes at offset 1, or 0 and a failure.
  uint64_t Tail(size_t size);
  uint32_t Sized(uint64_t count, size_t header_bytes, size_t min_bytes_each);
  std::string_view Take(uint64_t header_bytes, uint64_t size);

  const char* begin_;
  const char* next_;
  const char* end_;
  std::span<const std::string_view> aux_frames_;
  const char* failure_ = nullptr;
  size_t failed_at_ = 0;
};

}  // namespace tandem::wire
