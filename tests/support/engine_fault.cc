// Faults for tests, linked beside tandem-engine-core's own objects with --wrap, so that the real
// program has them:
//   - a CHECK fails when a request whose prompt ends in token 77 gets its 20th output;
//   - the loop's thread waits for ever when one whose prompt ends in token 78 gets its 5th;
//   - of several ranks, all but the engine core's wait for ever in a step that has token 79 three
//     times in a row, the engine core's after token 80;
//   - after token 81 it waits for a step of the stage before that nobody runs;
//   - after token 82 all others compute for kLongSeconds.

#include <algorithm>
#include <optional>
#include <span>

#include "common/check.h"
#include "common/mailbox.h"
#include "common/thread_clock.h"
#include "engine_core/executor/input_batch.h"
#include "engine_core/executor/rank_group.h"

namespace tandem {
namespace {

constexpr TokenId kFatalToken = 77, kBlockingToken = 78;
constexpr TokenId kBlocksOthers = 79, kBlocksOutputRank = 80, kAwaitsNothing = 81,
                  kComputesLong = 82;
constexpr double kLongSeconds = 5;
constexpr size_t kFatalOutput = 20, kBlockingOutput = 5;

void BlockForEver() {
  Mailbox<int> lock;
  for (;;) lock.Wait();
}

void Compute(double seconds) {
  const ThreadClock clock;
  const double end = clock.Seconds() + seconds;
  while (clock.Seconds() < end) {
  }
}

bool Has(const Tensor& token_ids, TokenId fault) {
  const std::span ids(token_ids.Data<int32_t>(), static_cast<size_t>(token_ids.rows()));
  constexpr int kInARow = 3;
  return std::search_n(ids.begin(), ids.end(), kInARow, fault) != ids.end();
}

}  // namespace

// Of tandem::InputBatch::AppendToken(RequestSlot, TokenId); the first argument is the object.
extern "C" void __real__ZN6tandem10InputBatch11AppendTokenENS_11RequestSlotEi(InputBatch* batch,
                                                                              RequestSlot slot,
                                                                              TokenId token);
extern "C" void __wrap__ZN6tandem10InputBatch11AppendTokenENS_11RequestSlotEi(InputBatch* batch,
                                                                              RequestSlot slot,
                                                                              TokenId token) {
  __real__ZN6tandem10InputBatch11AppendTokenENS_11RequestSlotEi(batch, slot, token);
  const size_t num_outputs = batch->output_ids(slot).size();
  const size_t num_prompt = batch->token_ids(slot).size() - num_outputs;
  const TokenId last = batch->token_ids(slot)[num_prompt - 1];
  CHECK(num_outputs != kFatalOutput || last != kFatalToken) << "the fault of the test";
  if (num_outputs == kBlockingOutput && last == kBlockingToken) BlockForEver();
}

// Of tandem::RankGroup::Read().
extern "C" std::optional<RankGroup::Record> __real__ZN6tandem9RankGroup4ReadEv(RankGroup* group);
extern "C" std::optional<RankGroup::Record> __wrap__ZN6tandem9RankGroup4ReadEv(RankGroup* group) {
  std::optional<RankGroup::Record> record = __real__ZN6tandem9RankGroup4ReadEv(group);
  if (!record || record->step == 0) return record;
  if (Has(record->inputs.token_ids, kBlocksOthers)) BlockForEver();
  if (Has(record->inputs.token_ids, kComputesLong)) Compute(kLongSeconds);
  return record;
}

// Of tandem::RankGroup::PublishStep(const StepInputs&, const StepLayout&, const StepRows&,
// StepMode).
extern "C" RankGroup::PublishedStep
__real__ZN6tandem9RankGroup11PublishStepERKNS_10StepInputsERKNS_10StepLayoutERKNS_8StepRowsENS_8StepModeE(
    RankGroup* group, const StepInputs& inputs, const StepLayout& layout, const StepRows& rows,
    StepMode mode);
extern "C" RankGroup::PublishedStep
__wrap__ZN6tandem9RankGroup11PublishStepERKNS_10StepInputsERKNS_10StepLayoutERKNS_8StepRowsENS_8StepModeE(
    RankGroup* group, const StepInputs& inputs, const StepLayout& layout, const StepRows& rows,
    StepMode mode) {
  const auto step =
      __real__ZN6tandem9RankGroup11PublishStepERKNS_10StepInputsERKNS_10StepLayoutERKNS_8StepRowsENS_8StepModeE(
          group, inputs, layout, rows, mode);
  if (Has(step.inputs.token_ids, kBlocksOutputRank)) BlockForEver();
  constexpr int64_t kNever = 1000;  // steps later
  if (Has(step.inputs.token_ids, kAwaitsNothing)) (void)group->AwaitHidden(step.number + kNever, 1);
  return step;
}

}  // namespace tandem
