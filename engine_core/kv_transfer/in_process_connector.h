#pragma once

// A KvConnector with its worker's half: both are in the engine's process. Thread: engine loop; what
// takes time runs on threads of its own.

#include "engine_core/scheduler/kv_connector.h"

namespace tandem {

class InProcessConnector : public KvConnector {
 public:
  // Appends what has ended since the last call.
  virtual void Report(KvTransferReport* report) = 0;
  // Whether something is under way.
  virtual bool is_busy() const = 0;
  // While something is: sleeps until it has ended, or for at most 1 ms.
  virtual void WaitBriefly() = 0;
};

}  // namespace tandem
