// No allocation per streamed token between the engine's output and the event's text.

#include <memory>

#include "tests/support/api_model.h"
#include "tests/support/heap/num_allocations.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

int64_t AllocationsPerStream(const ApiModel& model, std::string_view path, std::string_view body) {
  const auto prepared = model.Prepare(path, body);
  REQUIRE(prepared.ok());
  std::string events;
  const auto writer = prepared->MakeWriter(&events);
  OutputProcessor processor(model.tokenizer(), prepared->output,
                            prepared->processed.requests[0].prompt_token_ids);
  const auto words = model.tokenizer().Encode("The quick brown fox d\u00e9j\u00e0 vu \n\"", false);
  REQUIRE(words.ok());
  wire::EngineCoreOutput output;
  output.request_id = "r";
  int64_t before = 0;
  for (int step = 0; step < 400; ++step) {
    if (step == 200) before = NumAllocations();  // buffers have grown
    output.new_token_ids.assign(1, (*words)[static_cast<size_t>(step) % words->size()]);
    MessageDelta& delta = processor.Process(output);
    if (delta.ready) writer->WriteDelta(0, delta, {10, step, 0, 0});
    events.clear();
  }
  return NumAllocations() - before;
}

TEST_CASE("Steady stream: a token allocates nothing") {
  const ApiModel model;
  const char* const kChat = "/v1/chat/completions";
  const char* const kCompletion = "/v1/completions";
  CHECK(AllocationsPerStream(model, kChat,
                             R"({"messages":[{"role":"user","content":"x"}],"stream":true})") == 0);
  CHECK(AllocationsPerStream(model, kCompletion, R"({"prompt":"x","stream":true})") == 0);
  CHECK(AllocationsPerStream(
            model, kCompletion,
            R"({"prompt":"x","stream":true,"stop":["quicker","foxes"],"return_token_ids":true,
                "stream_options":{"include_usage":true,"continuous_usage_stats":true}})") == 0);
}

}  // namespace
}  // namespace tandem
