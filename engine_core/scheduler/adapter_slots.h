#pragma once

// The adapters (LoRA) of the running requests, so that there are never more than the model has room
// for.
// Thread: engine loop. A request without an adapter costs nothing.
// Nothing turns this on yet: requests with an adapter are refused.

#include <cstddef>
#include <cstdint>

#include <absl/container/flat_hash_map.h>

#include "engine_core/scheduler/request.h"

namespace tandem {

class AdapterSlots {
 public:
  explicit AdapterSlots(int32_t max_adapters) : max_adapters_(static_cast<size_t>(max_adapters)) {}

  bool HasRoomFor(AdapterId id) const {
    return id == 0 || num_users_.contains(id) || num_users_.size() < max_adapters_;
  }
  // A request with this adapter starts running, stops running. REQUIRES for Add: HasRoomFor.
  void Add(AdapterId id) {
    if (id != 0) ++num_users_[id];
  }
  void Remove(AdapterId id) {
    if (id != 0 && --num_users_[id] == 0) num_users_.erase(id);
  }

  size_t num_adapters() const { return num_users_.size(); }

 private:
  size_t max_adapters_;
  absl::flat_hash_map<AdapterId, int32_t> num_users_;
};

}  // namespace tandem
