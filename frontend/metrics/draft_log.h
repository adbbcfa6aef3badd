#pragma once

// The log line about drafts, as vLLM writes it: how many were accepted of those verified since the
// last line, by position too.
//   SpecDecoding metrics: Mean acceptance length: 1.62, Accepted throughput: 0.50 tokens/s, ...
// Thread: Record from any shard; Line from the shard that writes it.

#include <string>
#include <vector>

#include "common/mailbox.h"
#include "proto_msgpack/schema.h"

namespace tandem {

class DraftLog {
 public:
  // `now`: any monotonic clock.
  explicit DraftLog(double now) : last_time_(now) {}

  void Record(const wire::SpecDecodingStats& stats) { stats_.Push(stats); }
  // Of the time since the last line; empty when no draft was verified.
  std::string Line(double now);

 private:
  double last_time_;
  Mailbox<wire::SpecDecodingStats> stats_;
  std::vector<wire::SpecDecodingStats> drained_;
};

}  // namespace tandem
