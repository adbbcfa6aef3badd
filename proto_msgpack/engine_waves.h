#pragma once

// The waves of engines that share a mixture's experts: a wave begins when one of them gets a
// request while none runs, all of them step until none has a request, and its end is reported by
// the first. The rules are those of vLLM 0.33's coordinator, whose traces
// tests/golden/coordinator_clock_test.cc replays. Thread: one. Knows no sockets.

#include <cstdint>
#include <optional>

#include "proto_msgpack/schema.h"

namespace tandem::wire {

class EngineWaves {
 public:
  // An engine reports a wave's begin or end, or something else. Returns what wakes all others.
  std::optional<StartDpWave> OnReport(const EngineCoreOutputs& report);

  int64_t wave() const { return wave_; }  // the one that runs, or the next one
  bool running() const { return running_; }

 private:
  int64_t wave_ = 0;
  bool running_ = false;
};

}  // namespace tandem::wire
