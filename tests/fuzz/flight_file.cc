// A file of the flight recorder after its head, which is added here: it is long. Records lie within
// the file, or the file is refused.

#include <cstddef>
#include <cstring>
#include <string>

#include "common/check.h"
#include "engine_core/recorder/flight_file.h"
#include "engine_core/recorder/flight_ring.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  FuzzInput input(data, size);
  std::string bytes(kRingHeadBytes, '\0');
  std::memcpy(bytes.data(), RingHead::kMagic, sizeof RingHead::kMagic);
  // Up to beyond what a head can hold.
  const auto about_bytes = static_cast<uint32_t>(input.Below(256) * (kRingHeadBytes / 128));
  std::memcpy(bytes.data() + offsetof(RingHead, about_bytes), &about_bytes, sizeof about_bytes);
  const std::string_view reason = input.Part();
  bytes.replace(offsetof(RingHead, reason), reason.size(), reason);
  bytes += input.Rest();
  const auto file = ParseFlightFile(std::move(bytes));
  if (!file.ok()) {
    CHECK(!file.status().message().empty());
    return 0;
  }
  CHECK(file->about.size() <= kMaxAboutBytes);
  size_t num_bytes = 0;
  for (const FlightRecord& record : file->records) {
    CHECK(record.payload.data() >= file->bytes.data());
    CHECK(record.payload.data() + record.payload.size() <= file->bytes.data() + file->bytes.size());
    num_bytes += record.payload.size();
  }
  CHECK(num_bytes <= input.Rest().size());
  return 0;
}
