#pragma once

// Spaces out steps with prefill work (prefill_schedule_interval > 1), so that decodes keep an even
// pace. Counts steps that ran tokens, never time. Thread: engine loop.

#include <cstdint>

#include "common/packed_bytes.h"

namespace tandem {

class PrefillCadence {
 public:
  explicit PrefillCadence(int32_t interval) : interval_(interval), last_prefill_(-interval) {}

  // Whether the next step does no prefill. any_decoding: some running request is past its prefill;
  // without one no decode would be delayed.
  bool Holds(bool any_decoding) const {
    return interval_ > 1 && num_steps_ + 1 - last_prefill_ < interval_ && any_decoding &&
           !capacity_bound_;
  }
  // After an admission pass that was not held. Requests that it left waiting lack capacity, so
  // holding prefills back would only idle the engine.
  void NoteAdmissionPass(bool left_waiting) { capacity_bound_ = left_waiting; }
  void NoteStep(bool had_prefill) {
    ++num_steps_;
    if (had_prefill) last_prefill_ = num_steps_;
  }

  // For a checkpoint; see Scheduler.
  void Save(ByteWriter* out) const {
    out->Signed(num_steps_);
    out->Signed(last_prefill_);
    out->Fixed(capacity_bound_);
  }
  void Load(ByteReader* in) {
    num_steps_ = in->Signed();
    last_prefill_ = in->Signed();
    capacity_bound_ = in->Fixed<uint8_t>() != 0;
  }

 private:
  int64_t interval_;
  int64_t num_steps_ = 0;
  int64_t last_prefill_;  // number of the last step with prefill work
  bool capacity_bound_ = false;
};

}  // namespace tandem
