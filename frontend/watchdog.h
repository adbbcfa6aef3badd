#pragma once

// Reports to the process that watches us (systemd, `tandem serve`) that every network shard's loop
// runs: a beat is sent when a call has gone once around all of them. Without WATCHDOG_USEC it does
// nothing. Thread: the shards'; constructed before they start, outlives their threads.

#include <cstddef>
#include <vector>

#include "common/clock.h"
#include "frontend/net/net.h"

namespace tandem {

class ShardWatchdog {
 public:
  explicit ShardWatchdog(std::vector<Shard*> shards);
  ShardWatchdog(const ShardWatchdog&) = delete;

 private:
  void Pass(size_t shard);  // on that shard

  const std::vector<Shard*> shards_;
  const SystemClock clock_;
  double pause_s_ = 0;
};

}  // namespace tandem
