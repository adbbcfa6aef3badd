#include "frontend/watchdog.h"

#include <optional>
#include <utility>

#include "common/sd_notify.h"

namespace tandem {
namespace {

constexpr double kBeatsPerLimit = 4;

}  // namespace

ShardWatchdog::ShardWatchdog(std::vector<Shard*> shards) : shards_(std::move(shards)) {
  const std::optional<double> limit_s = WatchdogSeconds();
  if (!limit_s) return;
  pause_s_ = *limit_s / kBeatsPerLimit;
  shards_.front()->Post([this] { Pass(0); });
}

void ShardWatchdog::Pass(size_t shard) {
  if (shard + 1 < shards_.size()) {
    shards_[shard + 1]->Post([this, shard] { Pass(shard + 1); });
    return;
  }
  SendBeat();
  shards_.front()->Post(
      [this] { shards_.front()->At(clock_.Monotonic() + pause_s_, [this] { Pass(0); }); });
}

}  // namespace tandem
