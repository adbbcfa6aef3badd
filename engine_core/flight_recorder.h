#pragma once

// Records what goes into an EngineCore into a FlightRing: the loop reports what it does, and the
// engine gets its time, its executor and its grammars through the Recorded… classes here. Now and
// then a checkpoint is recorded, from which a replay (replay.h) can begin; it is due again after a
// quarter of the ring, so there is one in the ring however long a process runs.
// Thread: engine loop. Owns nothing. A steady step allocates nothing. Never fails: what does not
// fit is a gap, after which the next checkpoint is due at once.

#include <array>
#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "engine_core/engine_event.h"
#include "engine_core/executor/executor.h"
#include "engine_core/flight_records.h"
#include "engine_core/grammar/request_grammars.h"
#include "engine_core/recorder/flight_ring.h"

namespace tandem {

class EngineCore;

class FlightRecorder {
 public:
  // checkpoint_bytes: between two checkpoints; 0: a quarter of the ring.
  explicit FlightRecorder(FlightRing* ring, uint64_t checkpoint_bytes = 0)
      : ring_(ring),
        checkpoint_bytes_(checkpoint_bytes > 0 ? checkpoint_bytes : ring->bytes() / 4) {}
  FlightRecorder(const FlightRecorder&) = delete;

  // ---- the loop's ----
  void AddEvent(EngineEvent* event);
  bool is_checkpoint_due() const { return ring_->num_bytes() >= next_checkpoint_; }
  // Between two turns. pending: events that have been added and not handled. Does nothing while
  // steps are in flight.
  void Checkpoint(const EngineCore& engine, std::vector<EngineEvent>* pending);
  void BeginTurn(bool may_schedule) {
    Append(RecordKind::kTurn, [=](ByteWriter* out) { out->Fixed(may_schedule); });
  }
  void EndStep() {
    Append(RecordKind::kEndStep, [](ByteWriter*) {});
  }

  // ---- of the classes below ----
  template <class Fill>
  void Append(RecordKind kind, Fill&& fill) {
    if (ring_->Append(static_cast<uint8_t>(kind), fill)) return;
    AddGap("a record is larger than a segment of the ring");
  }
  // The number of the step.
  int64_t NoteSubmitted() { return ++num_submitted_; }
  int64_t NoteCollected() { return ++num_collected_; }

 private:
  void AddGap(const char* why);
  void Warn(const char* why);

  FlightRing* const ring_;
  const uint64_t checkpoint_bytes_;
  uint64_t next_checkpoint_ = 0;  // when the ring has had this many bytes
  bool has_warned_ = false;
  int64_t num_submitted_ = 0;
  int64_t num_collected_ = 0;
};

class RecordedClock final : public Clock {
 public:
  RecordedClock(const Clock* clock, FlightRecorder* recorder)
      : clock_(clock), recorder_(recorder) {}
  double Monotonic() const override {
    const double now = clock_->Monotonic();
    recorder_->Append(RecordKind::kClock, [=](ByteWriter* out) { out->Fixed(now); });
    return now;
  }
  double Unix() const override { return clock_->Unix(); }  // the engine does not read it

 private:
  const Clock* const clock_;
  FlightRecorder* const recorder_;
};

class RecordedExecutor final : public Executor {
 public:
  RecordedExecutor(Executor* executor, FlightRecorder* recorder)
      : executor_(executor), recorder_(recorder) {}
  const ExecutorLimits& limits() const override { return executor_->limits(); }
  Status Submit(const SchedulerOutput& step) override;
  Status Collect(ModelOutput* result) override;
  Status Release(const MemoryParts& parts, bool rereads) override;
  Status Restore(const MemoryParts& parts) override;

 private:
  Status Noted(Status status);
  Status NotedChange(Status status);

  Executor* const executor_;
  FlightRecorder* const recorder_;
  std::array<ForcedRuns, kMaxStepsInFlight> forced_;  // of the steps in flight, by their numbers
};

class RecordedGrammars final : public RequestGrammars {
 public:
  RecordedGrammars(RequestGrammars* grammars, FlightRecorder* recorder)
      : grammars_(grammars), recorder_(recorder) {}
  const GrammarDefaults& defaults() const override { return grammars_->defaults(); }
  bool Await(const Request& request) override;
  std::vector<GrammarResult> Take(const GrammarCompiled& compiled) override;
  void Foresee(const Scheduler& scheduler) override { grammars_->Foresee(scheduler); }
  void BeginMasks(Step* step) override { grammars_->BeginMasks(step); }
  void FinishMasks() override { grammars_->FinishMasks(); }
  std::vector<GrammarFailure> TakeFailures() override;
  void DropEnded(const Scheduler& scheduler) override { grammars_->DropEnded(scheduler); }

 private:
  RequestGrammars* const grammars_;
  FlightRecorder* const recorder_;
};

}  // namespace tandem
