#pragma once

// The utility calls that engines have not answered yet, by call id.
// Thread: the shard's. Each callback runs exactly once: with the reply, or when its engine is lost.

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "common/status.h"
#include "proto_msgpack/schema.h"

namespace tandem {

class UtilityCalls {
 public:
  // result: the packed value (empty: nil), or INTERNAL with the engine's message.
  using Callback = std::function<void(StatusOr<wire::RawValue> result)>;

  // Returns the id for the call.
  uint64_t Add(int engine_index, Callback callback);
  // Ids that are unknown are ignored.
  void HandleReply(const wire::UtilityOutput& reply);
  // Another engine has the index `from` from now on; the one before it is `to`.
  void Rename(int from, int to);
  void FailAllOf(int engine_index, const Status& why);

 private:
  struct Call {
    int engine_index = 0;
    Callback callback;
  };

  std::unordered_map<uint64_t, Call> calls_;
  uint64_t next_id_ = 1;
};

}  // namespace tandem
