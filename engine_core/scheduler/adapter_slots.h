#pragma once

// The adapters (LoRA) of the requests: how many requests have each, and that there are never more
// adapters among the running ones than the model has room for.
// Thread: engine loop. A request without an adapter costs nothing.

#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/container/flat_hash_map.h>

#include "engine_core/kv_cache/extra_keys.h"
#include "proto_msgpack/schema.h"

namespace tandem {

class AdapterSlots {
 public:
  explicit AdapterSlots(int32_t max_adapters) : max_adapters_(static_cast<size_t>(max_adapters)) {}

  // A request with this adapter is added, ends.
  void Enter(const Adapter& adapter);
  void Leave(AdapterId id);
  bool HasRoomFor(AdapterId id) const;
  // It starts running, stops running. REQUIRES for Add: HasRoomFor.
  void Add(AdapterId id);
  void Remove(AdapterId id);

  size_t num_adapters() const { return num_running_; }  // of running requests
  // Requests that have the adapter and have not ended.
  int32_t num_requests(AdapterId id) const;
  // Requests by the names of their adapters, in the order of the first that came.
  wire::CountsByName Running() const { return CountsOf(&Users::num_running); }
  wire::CountsByName Waiting() const { return CountsOf(&Users::num_waiting); }

 private:
  struct Users {
    std::string name;
    int64_t order = 0;  // of coming
    int32_t num_running = 0;
    int32_t num_waiting = 0;
  };
  wire::CountsByName CountsOf(int32_t Users::*count) const;

  size_t max_adapters_;
  size_t num_running_ = 0;
  int64_t num_entered_ = 0;
  absl::flat_hash_map<AdapterId, Users> users_;
};

}  // namespace tandem
