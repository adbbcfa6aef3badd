#include "engine_core/flight_recorder.h"

#include <utility>

#include "common/log.h"
#include "engine_core/engine_core.h"

namespace tandem {

void FlightRecorder::AddEvent(EngineEvent* event) {
  Append(RecordKind::kEvent, [event](ByteWriter* out) { PackEvent(event, out); });
}

void FlightRecorder::AddGap(const char* why) {
  ring_->Append(static_cast<uint8_t>(RecordKind::kGap),
                [why](ByteWriter* out) { out->Bytes(why); });
  next_checkpoint_ = ring_->num_bytes();
}

void FlightRecorder::Checkpoint(const EngineCore& engine, std::vector<EngineEvent>* pending) {
  if (engine.has_steps_in_flight()) return;
  if (!engine.CanSave()) {
    next_checkpoint_ = ring_->num_bytes() + checkpoint_bytes_ / 8;
    return Warn("a KV connector is used");
  }
  const bool is_saved =
      ring_->Append(static_cast<uint8_t>(RecordKind::kCheckpoint), [&](ByteWriter* out) {
        out->Signed(num_submitted_);
        out->Signed(num_collected_);
        engine.Save(out);
      });
  // An attempt costs time, and a segment of older records.
  next_checkpoint_ = ring_->num_bytes() + checkpoint_bytes_ * (is_saved ? 1 : 2);
  if (!is_saved) return Warn("its requests are too many, raise --flight-recorder-size");
  // A replay that begins here has not seen them.
  for (EngineEvent& event : *pending) AddEvent(&event);
}

void FlightRecorder::Warn(const char* why) {
  if (std::exchange(has_warned_, true)) return;
  LOG_WARNING << "[flight recorder] no checkpoint now, so a recording may not be replayable: "
              << why;
}

// ---- what the engine sees ----

Status RecordedExecutor::Submit(const SchedulerOutput& step) {
  const SubmittedStep submitted = DescribeStep(step, recorder_->NoteSubmitted());
  recorder_->Append(RecordKind::kSubmitted,
                    [&](ByteWriter* out) { PackSubmitted(submitted, out); });
  Status status = Noted(executor_->Submit(step));
  // Its masks are complete by now.
  CopyForced(step, &forced_[static_cast<size_t>(submitted.number) % forced_.size()]);
  return status;
}

Status RecordedExecutor::Collect(ModelOutput* result) {
  const int64_t number = recorder_->NoteCollected();
  RETURN_IF_ERROR(Noted(executor_->Collect(result)));
  const ForcedRuns& forced = forced_[static_cast<size_t>(number) % forced_.size()];
  recorder_->Append(RecordKind::kCollected,
                    [&](ByteWriter* out) { PackCollected(number, *result, forced, out); });
  return OkStatus();
}

Status RecordedExecutor::Noted(Status status) {
  if (!status.ok()) {
    recorder_->Append(RecordKind::kExecutorLost, [&](ByteWriter* out) { PackStatus(status, out); });
  }
  return status;
}

Status RecordedExecutor::Release(const MemoryParts& parts, bool rereads) {
  return NotedChange(executor_->Release(parts, rereads));
}

Status RecordedExecutor::Restore(const MemoryParts& parts) {
  return NotedChange(executor_->Restore(parts));
}

Status RecordedExecutor::NotedChange(Status status) {
  recorder_->Append(RecordKind::kMemory, [&](ByteWriter* out) { PackStatus(status, out); });
  return status;
}

bool RecordedGrammars::Await(const Request& request) {
  const bool is_there = grammars_->Await(request);
  recorder_->Append(RecordKind::kGrammarAwaited, [=](ByteWriter* out) { out->Fixed(is_there); });
  return is_there;
}

std::vector<GrammarResult> RecordedGrammars::Take(const GrammarCompiled& compiled) {
  std::vector<GrammarResult> results = grammars_->Take(compiled);
  recorder_->Append(RecordKind::kGrammarsTaken,
                    [&](ByteWriter* out) { PackGrammarResults(results, out); });
  return results;
}

std::vector<GrammarFailure> RecordedGrammars::TakeFailures() {
  std::vector<GrammarFailure> failures = grammars_->TakeFailures();
  if (!failures.empty()) {
    recorder_->Append(RecordKind::kGrammarFailures,
                      [&](ByteWriter* out) { PackGrammarFailures(failures, out); });
  }
  return failures;
}

}  // namespace tandem
