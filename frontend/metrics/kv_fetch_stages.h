#pragma once

// vllm:num_requests_kv_fetch_by_stage of one engine: waiting requests whose KV is brought from
// elsewhere by an asynchronous load, by how far it is. The series exist once the engine is known to
// load any. Thread: first shard.

#include <utility>

#include "frontend/metrics/instruments.h"
#include "proto_msgpack/schema.h"

namespace tandem {

class KvFetchStages {
 public:
  explicit KvFetchStages(MetricScope scope) : in_(std::move(scope)) {}

  // The engine loads KV: its series appear at 0.
  void Show() { Set({}); }
  // Of a report of the engine. Stages that it does not name are empty; engines that load nothing
  // name none.
  void Record(const wire::CountsByName& counts) {
    if (is_shown_ || !counts.empty()) Set(counts);
  }

 private:
  void Set(const wire::CountsByName& counts);

  MetricScope in_;
  bool is_shown_ = false;
};

}  // namespace tandem
