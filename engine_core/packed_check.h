#pragma once

// Reads the files of packed matrices that an engine has mapped, once it serves, on a thread that
// runs when no other wants the CPU. A file whose bytes are not those that were packed is marked
// (engine_core/weights/packed_parts.h), and the engine is to end: nobody knows which of its outputs
// were wrong. Thread: Push and Begin on the engine's loop, main before it; on_damage on a thread of
// its own.

#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "common/job_thread.h"
#include "common/status.h"
#include "engine_core/weights/packed_parts.h"

namespace tandem {

class PackedCheck {
 public:
  explicit PackedCheck(std::function<void(const Status& damage)> on_damage)
      : on_damage_(std::move(on_damage)) {}
  // Does not wait for the rest of a file.
  ~PackedCheck() { ends_ = true; }
  PackedCheck(const PackedCheck&) = delete;

  // Before Begin it is only noted.
  void Push(PackedParts parts);
  void Begin();

 private:
  void Check(const PackedParts& parts);

  const std::function<void(const Status& damage)> on_damage_;
  std::atomic<bool> ends_{false};
  std::vector<PackedParts> noted_;
  std::optional<JobThread<PackedParts>> thread_;  // none: nothing was to be checked
  bool has_begun_ = false;
};

}  // namespace tandem
