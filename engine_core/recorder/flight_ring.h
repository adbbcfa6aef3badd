#pragma once

// A ring of records in shared memory: what the flight recorder writes into, and what its files
// hold. The ring is cut into segments; a new one takes the place of the oldest. A record lies
// wholly in one segment: [kind, 1 byte] [size, 4 bytes] [payload]. The memory is an anonymous file
// (memfd), so that another process of the same user can copy it while this one runs, hangs or is
// stopped; core files contain it too. Pages are taken only as they are written. Threads: Append on
// one; everything else on any, also in a signal handler where it says so. Nothing is allocated
// after Create.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "common/packed_bytes.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem {

// The first bytes of the memory and of a file. Numbers are those of the machine that writes.
struct RingHead {
  static constexpr char kMagic[8] = {'T', 'N', 'D', 'M', 'F', 'L', 'T', '1'};

  char magic[8];
  uint32_t num_segments;
  uint32_t about_bytes;
  uint64_t segment_bytes;           // of records, without the SegmentHead
  std::atomic<uint64_t> num_begun;  // segments so far; the newest is num_begun - 1
  std::atomic<uint32_t> is_frozen;  // nothing is appended any more
  char reason[256];                 // why the file was written; ends with a zero
};

struct SegmentHead {
  uint64_t sequence;           // the first segment is 0
  std::atomic<uint64_t> size;  // of its whole records
};

// RingHead and the text about the recording.
constexpr size_t kRingHeadBytes = size_t{64} << 10;
constexpr size_t kMaxAboutBytes = kRingHeadBytes - 4096;
constexpr size_t kRecordHeadBytes = 5;
constexpr const char* kRingName = "tandem-flight-recorder";  // of the memfd, in /proc/PID/fd

class FlightRing {
 public:
  static constexpr size_t kMinBytes = size_t{64} << 10;

  // bytes: of all segments together. about: kept in front of them.
  static StatusOr<FlightRing> Create(size_t bytes, std::string_view about);
  FlightRing(FlightRing&& other) noexcept;
  FlightRing& operator=(FlightRing&&) = delete;
  ~FlightRing();

  // Appends a record whose payload `fill(ByteWriter*)` writes; it is called again, in a new
  // segment, when the current one has no room. False: no segment has.
  template <class Fill>
  bool Append(uint8_t kind, Fill&& fill) {
    if (head()->is_frozen.load(std::memory_order_relaxed) != 0) return true;
    for (const bool is_new : {false, true}) {
      if (is_new) BeginSegment();
      if (segment_size_ + kRecordHeadBytes > segment_bytes_) continue;
      ByteWriter writer = Room();
      fill(&writer);
      if (!writer.fits()) continue;
      Commit(kind, writer.size());
      return true;
    }
    return false;
  }
  // Since Create, dropped ones included.
  uint64_t num_bytes() const { return num_bytes_; }
  size_t bytes() const { return num_segments_ * segment_bytes_; }

  // From here on Append does nothing. Also in a signal handler.
  void Freeze() { head()->is_frozen.store(1); }
  // Writes the ring to a file, with system calls alone, also in a signal handler; 0 or an errno. A
  // segment that another thread replaces meanwhile may be torn: freeze first, or compare num_begun.
  int WriteTo(int fd, const char* reason) const { return WriteRing(memory_, fd, reason); }
  uint64_t num_begun() const { return head()->num_begun.load(); }

  // The same for the memory of a ring, mapped writable.
  static int WriteRing(char* memory, int fd, const char* reason);

 private:
  FlightRing() = default;
  RingHead* head() const { return reinterpret_cast<RingHead*>(memory_); }
  void BeginSegment();
  ByteWriter Room() const;
  void Commit(uint8_t kind, size_t payload_bytes);

  UniqueFd fd_;
  char* memory_ = nullptr;
  size_t memory_bytes_ = 0;
  size_t num_segments_ = 0;
  size_t segment_bytes_ = 0;
  SegmentHead* segment_ = nullptr;  // the current one
  size_t segment_size_ = 0;
  uint64_t num_bytes_ = 0;
};

}  // namespace tandem
