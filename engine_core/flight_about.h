#pragma once

// What a recording says about the engine that made it: JSON in front of its records, readable with
// `head -c 4096 FILE`. A replay builds its engine from it.
// Thread: values. Failure: text that ToJson has not written is DATA_LOSS.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

struct FlightAbout {
  std::string tandem_version;
  std::string build_id;  // of the program, as `file` and gdb show it
  int64_t pid = 0;
  double unix_time = 0;  // when the process began
  std::vector<std::string> flags;
  std::string device;   // "cpu", "cuda" or "reference"
  std::string backend;  // its description, with the instruction set
  // What the engine chose by the memory it found.
  int64_t num_blocks = 0;
  int64_t max_model_len = 0;
  std::string kv_hash_seed;

  std::string ToJson() const;
};

StatusOr<FlightAbout> ParseFlightAbout(std::string_view json);

// Of the running program, in hexadecimal digits; empty: it has none.
std::string OwnBuildId();

}  // namespace tandem
