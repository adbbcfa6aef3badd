#pragma once

// A `tandem serve` that one command starts for itself, and the flags it was given. Thread: one.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/flags.h"
#include "common/status.h"
#include "deploy/cli/bench/own_server.h"

namespace tandem {

struct PrivateServerConfig {
  std::vector<std::string> serve_args;  // what follows `tandem serve`
  std::string model;                    // the folder
  std::string served_name;              // what requests call the model
  std::string api_key;                  // to send; empty: none is needed
  int64_t max_body_bytes = 0;           // of a request; 0: no limit
};

// Splits a command line between `own` rows, which it parses, and those of `tandem serve`, which
// become *config. INVALID_ARGUMENT for a flag of neither, a wrong value or no model.
StatusOr<FlagOutcome> ParseWithServeFlags(const std::vector<std::string>& args,
                                          const std::vector<Flag>& own, std::string_view about,
                                          PrivateServerConfig* config);

// Ready to take requests at base_url().
StatusOr<std::unique_ptr<OwnServer>> StartPrivateServer(const PrivateServerConfig& config);

}  // namespace tandem
