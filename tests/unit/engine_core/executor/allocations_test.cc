// A steady decode step of the model runner allocates nothing, with any kind of sampling but
// logprobs.

#include "engine_core/weights/dummy_weights.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/files/temp_folder.h"
#include "tests/support/heap/num_allocations.h"
#include "tests/support/state_models.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

void CheckSteadyDecode(EngineDriverOptions options) {
  options.dtype = DType::kBf16;
  options.num_blocks = 128;
  EngineDriver engine(options);
  for (int i = 0; i < 8; ++i) {
    wire::SamplingParams params = GreedyParams(200);
    if (i % 2 == 1) params.temperature = 0.8;
    if (i == 3) params.top_p = 0.9;
    if (i == 5) params.top_k = 10;
    if (i == 7) params.repetition_penalty = 1.3;
    engine.Add(std::to_string(i), {3, 4, 5, 6}, params);
  }
  for (int step = 0; step < 20; ++step) REQUIRE(engine.Step());
  ModelOutput result;
  ClientOutputs outputs;
  int64_t during_steps = 0;
  const std::vector<int32_t> mask(
      static_cast<size_t>(TokenMaskWords(engine.runner().limits().vocab_size)), 0x5555);
  for (int step = 0; step < 100; ++step) {
    const SchedulerOutput& scheduled = engine.scheduler().Schedule(step);
    REQUIRE(scheduled.requests.size() == 8);
    SchedulerOutput masked = scheduled;
    if (step % 2 == 0) masked.token_masks = {{1, mask}, {4, mask}};
    const int64_t before = NumAllocations();
    const Status status = engine.runner().Execute(masked, &result);
    // `result` changes hands with the results of the runner, and each has to grow once.
    if (step > static_cast<int>(kMaxStepsInFlight)) during_steps += NumAllocations() - before;
    REQUIRE(status.ok());
    engine.scheduler().Update(scheduled, &result, &outputs);
    std::vector<ClientMessage> messages;
    outputs.Take(step, &messages);
  }
  CHECK(during_steps == 0);
}

TEST_CASE("Steady decode: the model runner allocates nothing") {
  const std::string model = GENERATE("qwen3", "mixtral", "qwen3_moe", "gemma3_text");
  CAPTURE(model);
  CheckSteadyDecode({.model_dir = TANDEM_GOLDEN_DIR "/models/" + model, .num_threads = 2});
}

// One thread: another one's scratch memory is made when it first takes a head, which may be late.
TEST_CASE("Steady decode: layers with a state allocate nothing") {
  const std::string model = GENERATE("qwen3_5_text", "lfm2");
  CAPTURE(model);
  CheckSteadyDecode({.model_dir = TANDEM_GOLDEN_DIR "/models/" + model});
}

TEST_CASE("Steady decode: scans allocate nothing") {
  for (const std::string_view model : kStateModels) {
    CAPTURE(model);
    const TempFolder folder;
    folder.Write("config.json", ConfigOfStateModel(model));
    const auto weights = MakeDummyWeights(1);
    CheckSteadyDecode({.model_dir = folder.path(), .weights = weights.get()});
  }
}

}  // namespace
}  // namespace tandem
