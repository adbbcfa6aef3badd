// A fault for tests of the flight recorder: linked beside tandem-engine-core's own objects with
// --wrap, so that the real program fails a CHECK when a request whose prompt ends in token 77 gets
// its 20th output.

#include "common/check.h"
#include "engine_core/executor/input_batch.h"

namespace tandem {

constexpr TokenId kFatalToken = 77;
constexpr size_t kFatalOutput = 20;

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
  const bool is_fatal =
      num_outputs == kFatalOutput && batch->token_ids(slot)[num_prompt - 1] == kFatalToken;
  CHECK(!is_fatal) << "the fault of the test";
}

}  // namespace tandem
