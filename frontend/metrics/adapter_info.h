#pragma once

// vllm:lora_requests_info: which adapters have running and waiting requests, as labels; the value
// is the unix time of the last report, because routers take the newest series. There is one series:
// one with other labels replaces it. None until an engine that serves adapters is there, or
// ShowAlways.
// Thread: one; the first shard's.

#include <string>
#include <vector>

#include "proto_msgpack/schema.h"

namespace prometheus {
class Gauge;
class Registry;
}  // namespace prometheus

namespace tandem {

class AdapterInfo {
 public:
  AdapterInfo(prometheus::Registry* registry, int num_engines)
      : registry_(registry), engines_(static_cast<size_t>(num_engines)) {}

  // The series is there at once, with max_lora 0 as long as no engine serves adapters.
  void ShowAlways(double unix_now);
  // An engine is there, which runs that many adapters together; 0: it serves none.
  void SetMaxLoras(int engine_index, int max_loras, double unix_now);
  // The adapters that have requests in one of its engines.
  void Record(int engine_index, const wire::SchedulerStats& stats, double unix_now);

 private:
  struct Engine {
    int max_loras = 0;
    std::vector<std::string> running;
    std::vector<std::string> waiting;
  };

  void Show(double unix_now);

  prometheus::Registry* const registry_;
  std::vector<Engine> engines_;
  bool is_always_shown_ = false;
  bool is_changed_ = false;             // since it was shown
  prometheus::Gauge* shown_ = nullptr;  // null: never yet
};

}  // namespace tandem
