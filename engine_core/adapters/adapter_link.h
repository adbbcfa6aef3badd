#pragma once

// How adapters get into an engine: the loop asks for a load, and what becomes of it comes back as
// an event. Two implementations of AdapterLoads: AdapterLoader, with a thread of its own, and a
// replay's, where the recorded events come by themselves.
// Thread: values; Start on the engine loop.

#include <cstdint>
#include <memory>
#include <string>

#include "common/status.h"
#include "engine_core/kv_cache/extra_keys.h"

namespace tandem {

struct AdapterLoad {
  AdapterId id = 0;  // of this load: an adapter that is loaded again gets another one
  std::string name;
  std::string folder;
};

// An EngineEvent.
struct AdapterLoaded {
  AdapterId id = 0;
  Status status;  // not OK: why the adapter cannot be used
  uint64_t digest = 0;
  std::shared_ptr<const AdapterWeights> weights = {};  // null in a replay
};

class AdapterLoads {
 public:
  virtual ~AdapterLoads() = default;
  virtual void Start(AdapterLoad load) = 0;
};

}  // namespace tandem
