#pragma once

// The records of the flight recorder: everything that goes into EngineCore, in the order in which
// it is taken in, and between them the begin and the end of each step. The loop's own records
// (kEvent, kTurn, kEndStep, kCheckpoint) are its calls; the others are what the engine asks for
// while a call runs (time, results, grammars), so they follow the call's record.
// Pure functions; any thread. Failure: what no Pack… has written is DATA_LOSS.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/packed_bytes.h"
#include "common/status.h"
#include "engine_core/engine_event.h"
#include "engine_core/grammar/request_grammars.h"
#include "engine_core/scheduler/model_output.h"
#include "engine_core/scheduler/scheduler_output.h"

namespace tandem {

enum class RecordKind : uint8_t {
  kCheckpoint = 1,        // steps submitted, steps collected, EngineCore::Save
  kEvent = 2,             // arrived; handled in the next turn
  kTurn = 3,              // the events so far are handled, and a step begins
  kEndStep = 4,           // the events since are looked through for aborts, and the step ends
  kClock = 5,             // a reading
  kSubmitted = 6,         // a step goes to the executor
  kCollected = 7,         // its result
  kExecutorLost = 8,      // in place of a result
  kGrammarAwaited = 9,    // whether it was there already
  kGrammarsTaken = 10,    // results of a compilation
  kGrammarFailures = 11,  // of a step; none is written when there is none
  kGap = 12,              // something was not recorded: why
  kMemory = 13,           // what came of releasing or restoring memory
};
std::string_view RecordKindName(RecordKind kind);

// The event is as before when this returns. A grammar's socket and an adapter's weights are left
// out.
void PackEvent(EngineEvent* event, ByteWriter* out);
StatusOr<EngineEvent> UnpackEvent(std::string_view payload);

struct SubmittedStep {
  int64_t number = 0;  // the first step of the process is 1
  uint64_t digest = 0;
  int32_t num_requests = 0;
  int32_t num_tokens = 0;

  bool operator==(const SubmittedStep&) const = default;
};
// Its digest covers requests, slots, positions and blocks.
SubmittedStep DescribeStep(const SchedulerOutput& step, int64_t number);
void PackSubmitted(const SubmittedStep& step, ByteWriter* out);
StatusOr<SubmittedStep> UnpackSubmitted(std::string_view payload);

// The forced tokens of a step's masks: for each run its request's index, its size, its tokens.
using ForcedRuns = std::vector<int32_t>;
void CopyForced(const SchedulerOutput& step, ForcedRuns* forced);
// To the masks of a step that has none forced yet.
void SetForced(const ForcedRuns& forced, SchedulerOutput* step);

// Without logprobs and what goes only to clients.
void PackCollected(int64_t number, const ModelOutput& result, const ForcedRuns& forced,
                   ByteWriter* out);
Status UnpackCollected(std::string_view payload, int64_t* number, ModelOutput* result,
                       ForcedRuns* forced);

void PackStatus(const Status& status, ByteWriter* out);
Status UnpackStatus(ByteReader* in);
void PackGrammarResults(const std::vector<GrammarResult>& results, ByteWriter* out);
std::vector<GrammarResult> UnpackGrammarResults(std::string_view payload);
void PackGrammarFailures(const std::vector<GrammarFailure>& failures, ByteWriter* out);
std::vector<GrammarFailure> UnpackGrammarFailures(std::string_view payload);

}  // namespace tandem
