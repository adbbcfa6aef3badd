#include "engine_core/recorder/flight_ring.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

constexpr size_t kNumSegments = 8;

SegmentHead* SegmentAt(char* memory, uint64_t sequence) {
  const auto* head = reinterpret_cast<const RingHead*>(memory);
  const uint64_t place = sequence % head->num_segments;
  return reinterpret_cast<SegmentHead*>(memory + kRingHeadBytes +
                                        place * (sizeof(SegmentHead) + head->segment_bytes));
}

int WriteAll(int fd, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t written = write(fd, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes += written;
    count -= static_cast<size_t>(written);
  }
  return 0;
}

}  // namespace

StatusOr<FlightRing> FlightRing::Create(size_t bytes, std::string_view about) {
  static_assert(sizeof(RingHead) <= kRingHeadBytes - kMaxAboutBytes);
  static_assert(offsetof(RingHead, num_begun) == 24 && offsetof(RingHead, reason) == 36 &&
                    sizeof(SegmentHead) == 16,
                "deploy/gdb reads them there");
  CHECK_GE(bytes, kMinBytes);
  if (about.size() > kMaxAboutBytes) {
    return InvalidArgumentError("the flight recorder keeps at most " +
                                std::to_string(kMaxAboutBytes) + " bytes of flags, these are " +
                                std::to_string(about.size()));
  }
  FlightRing ring;
  ring.num_segments_ = kNumSegments;
  ring.segment_bytes_ = bytes / kNumSegments / 64 * 64;
  ring.memory_bytes_ = kRingHeadBytes + kNumSegments * (sizeof(SegmentHead) + ring.segment_bytes_);
  ring.fd_ = UniqueFd(memfd_create(kRingName, MFD_CLOEXEC));
  if (!ring.fd_) return ErrnoError(errno, "memory of the flight recorder");
  if (ftruncate(ring.fd_.get(), static_cast<off_t>(ring.memory_bytes_)) != 0) {
    return ErrnoError(errno, "memory of the flight recorder");
  }
  void* memory =
      mmap(nullptr, ring.memory_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd_.get(), 0);
  if (memory == MAP_FAILED) return ErrnoError(errno, "memory of the flight recorder");
  ring.memory_ = static_cast<char*>(memory);
  RingHead* head = ring.head();
  std::memcpy(head->magic, RingHead::kMagic, sizeof head->magic);
  head->num_segments = kNumSegments;
  head->segment_bytes = ring.segment_bytes_;
  head->about_bytes = static_cast<uint32_t>(about.size());
  std::memcpy(ring.memory_ + (kRingHeadBytes - kMaxAboutBytes), about.data(), about.size());
  ring.BeginSegment();
  return ring;
}

FlightRing::FlightRing(FlightRing&& other) noexcept
    : fd_(std::move(other.fd_)),
      memory_(std::exchange(other.memory_, nullptr)),
      memory_bytes_(other.memory_bytes_),
      num_segments_(other.num_segments_),
      segment_bytes_(other.segment_bytes_),
      segment_(other.segment_),
      segment_size_(other.segment_size_),
      num_bytes_(other.num_bytes_) {}

FlightRing::~FlightRing() {
  if (memory_ != nullptr) munmap(memory_, memory_bytes_);
}

// A reader never takes records of the segment that was at this place for the new one's.
void FlightRing::BeginSegment() {
  const uint64_t sequence = head()->num_begun.load(std::memory_order_relaxed);
  segment_ = SegmentAt(memory_, sequence);
  segment_->size.store(0, std::memory_order_release);
  segment_->sequence = sequence;
  segment_size_ = 0;
  head()->num_begun.store(sequence + 1, std::memory_order_release);
}

ByteWriter FlightRing::Room() const {
  const size_t used = segment_size_ + kRecordHeadBytes;
  char* records = reinterpret_cast<char*>(segment_ + 1);
  return ByteWriter({records + used, segment_bytes_ - used});
}

void FlightRing::Commit(uint8_t kind, size_t payload_bytes) {
  char* record = reinterpret_cast<char*>(segment_ + 1) + segment_size_;
  CHECK_LE(segment_size_ + kRecordHeadBytes + payload_bytes, segment_bytes_);
  const auto size = static_cast<uint32_t>(payload_bytes);
  record[0] = static_cast<char>(kind);
  std::memcpy(record + 1, &size, sizeof size);
  segment_size_ += kRecordHeadBytes + payload_bytes;
  num_bytes_ += kRecordHeadBytes + payload_bytes;
  segment_->size.store(segment_size_, std::memory_order_release);
}

int FlightRing::WriteRing(char* memory, int fd, const char* reason) {
  auto* head = reinterpret_cast<RingHead*>(memory);
  size_t length = 0;
  for (; reason[length] != '\0' && length + 1 < sizeof head->reason; ++length) {
    head->reason[length] = reason[length];
  }
  head->reason[length] = '\0';
  if (const int error = WriteAll(fd, memory, kRingHeadBytes); error != 0) return error;
  const uint64_t end = head->num_begun.load(std::memory_order_acquire);
  for (uint64_t i = end - std::min<uint64_t>(end, head->num_segments); i < end; ++i) {
    const SegmentHead* segment = SegmentAt(memory, i);
    // Read once: it may grow.
    const uint64_t size = segment->size.load(std::memory_order_acquire);
    const uint64_t numbers[2] = {i, size};
    if (const int error = WriteAll(fd, reinterpret_cast<const char*>(numbers), sizeof numbers);
        error != 0) {
      return error;
    }
    if (const int error = WriteAll(fd, reinterpret_cast<const char*>(segment + 1), size);
        error != 0) {
      return error;
    }
  }
  return 0;
}

}  // namespace tandem
