#pragma once

// Decode steps captured once, at start, and replayed: one graph per padded batch size, which holds
// the whole step from the inputs to the sampled tokens. A replay reads its inputs at the addresses
// of the capture, which StepInputs keeps for each shape.
// Thread: engine loop. Owns: the graphs, which must go away before the device. Borrows the device.
// Failure: a capture that the device refuses, at start. A device that cannot capture has no graphs.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/status.h"
#include "engine_core/executor/step_layout.h"
#include "kernels/device.h"

namespace tandem {

class DecodeGraphs {
 public:
  // `sizes` ascending, in requests of one token; those over max_size are left out.
  DecodeGraphs(Device* device, std::span<const int64_t> sizes, int64_t max_size);

  // Captures each size: prepare(size) puts the inputs of such a step in place, run() is its ops.
  Status Capture(const std::function<void(int64_t)>& prepare, const std::function<void()>& run);
  void Drop() { graphs_.clear(); }

  // The smallest graph that can run the step, once the step is padded to its size; null: none can.
  struct Graph {
    int64_t size = 0;
    std::unique_ptr<CapturedOps> ops;
  };
  const Graph* Find(const StepLayout& layout) const;
  void Replay(const Graph& graph);

  int64_t num_graphs() const { return static_cast<int64_t>(graphs_.size()); }
  int64_t num_replays() const { return num_replays_; }

 private:
  Device* device_;
  std::vector<int64_t> sizes_;
  std::vector<Graph> graphs_;  // of each size, or none
  int64_t num_replays_ = 0;
};

}  // namespace tandem
