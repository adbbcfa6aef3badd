#pragma once

// A file of the flight recorder, read back: its records in order, from the oldest segment on.
// Thread: a value, any one. Failure: not such a file, or broken: DATA_LOSS names the place. A file
// whose end is missing has the records that are whole.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

struct FlightRecord {
  uint8_t kind = 0;
  std::string_view payload;
};

// Movable only: the views are of its bytes, which are too many to lie inside the string itself.
struct FlightFile {
  std::string bytes;
  std::string_view about;
  std::string reason;
  std::vector<FlightRecord> records;
  bool is_whole_run = false;  // nothing was dropped since the process began

  FlightFile() = default;
  FlightFile(FlightFile&&) = default;
  FlightFile& operator=(FlightFile&&) = delete;
};

StatusOr<FlightFile> ReadFlightFile(const std::string& path);
StatusOr<FlightFile> ParseFlightFile(std::string bytes);

}  // namespace tandem
