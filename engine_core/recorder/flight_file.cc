#include "engine_core/recorder/flight_file.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "common/packed_bytes.h"
#include "common/read_file.h"
#include "engine_core/recorder/flight_ring.h"

namespace tandem {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{8} << 30;

// The records of one segment; false: it is broken.
bool TakeRecords(std::string_view segment, std::vector<FlightRecord>* records) {
  while (!segment.empty()) {
    if (segment.size() < kRecordHeadBytes) return false;
    uint32_t size;
    std::memcpy(&size, segment.data() + 1, sizeof size);
    if (segment.size() - kRecordHeadBytes < size) return false;
    records->push_back({static_cast<uint8_t>(segment[0]), segment.substr(kRecordHeadBytes, size)});
    segment.remove_prefix(kRecordHeadBytes + size);
  }
  return true;
}

Status TakeSegments(std::string_view bytes, FlightFile* file) {
  ByteReader reader(bytes);
  uint64_t expected = 0;
  for (bool is_first = true; !reader.empty(); is_first = false) {
    const auto sequence = reader.Fixed<uint64_t>();
    const auto size = reader.Fixed<uint64_t>();
    if (!reader.ok()) return OkStatus();  // the end is missing
    if (is_first) {
      file->is_whole_run = sequence == 0;
    } else if (sequence != expected) {
      return DataLossError("segment " + std::to_string(expected) + " is missing");
    }
    expected = sequence + 1;
    const std::string_view records = bytes.substr(bytes.size() - reader.num_left());
    const bool is_cut = size > records.size();
    const bool is_whole = TakeRecords(records.substr(0, size), &file->records);
    if (is_cut) return OkStatus();
    if (!is_whole) return DataLossError("segment " + std::to_string(sequence) + " is broken");
    reader.Skip(size);
  }
  return OkStatus();
}

}  // namespace

StatusOr<FlightFile> ParseFlightFile(std::string bytes) {
  FlightFile file;
  file.bytes = std::move(bytes);
  const std::string_view all = file.bytes;
  if (all.size() < kRingHeadBytes ||
      std::memcmp(all.data(), RingHead::kMagic, sizeof RingHead::kMagic) != 0) {
    return DataLossError("this is no recording of this version of Tandem");
  }
  uint32_t about_bytes;
  std::memcpy(&about_bytes, all.data() + offsetof(RingHead, about_bytes), sizeof about_bytes);
  const char* reason = all.data() + offsetof(RingHead, reason);
  file.reason.assign(reason, strnlen(reason, sizeof RingHead::reason));
  if (about_bytes > kMaxAboutBytes) return DataLossError("its head is broken");
  file.about = all.substr(kRingHeadBytes - kMaxAboutBytes, about_bytes);
  RETURN_IF_ERROR(TakeSegments(all.substr(kRingHeadBytes), &file));
  return file;
}

StatusOr<FlightFile> ReadFlightFile(const std::string& path) {
  ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kMaxFileBytes));
  StatusOr<FlightFile> file = ParseFlightFile(std::move(bytes));
  if (!file.ok()) return file.status().WithContext(path);
  return file;
}

}  // namespace tandem
