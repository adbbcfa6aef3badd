// Adapters on an emulated CUDA device: requests with several adapters and without one, in one
// batch, write what the reference writes for each alone: in eager steps and in graphs, with fewer
// places on the device than there are adapters, with preemption and with drafts.

#include <map>
#include <string>
#include <vector>

#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/engine/adapted_engine.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Sent {
  TestRequest request;
  size_t adapter = 0;
};

std::vector<Sent> Requests() {
  std::vector<Sent> requests;
  for (int i = 0; i < 8; ++i) {
    Sent& sent = requests.emplace_back();
    sent.adapter = static_cast<size_t>(i % (kNumTestAdapters + 1));
    TestRequest& r = sent.request;
    r.id = std::to_string(i);
    for (int t = 0; t < 5 + 4 * i; ++t) r.prompt.push_back(t < 16 ? 4 + t % 3 : 3 + (5 * t) % 7);
    r.arrival_step = i;
    r.params = GreedyParams(5 + i);
    r.params.logprobs = 1;
    if (i == 5) r.params.prompt_logprobs = 1;
  }
  return requests;
}

EngineDriverOptions BaseOptions(const std::string& model) {
  EngineDriverOptions options;
  options.model_dir = TANDEM_GOLDEN_DIR "/models/" + model;
  options.dtype = DType::kF32;
  options.max_num_batched_tokens = 24;
  options.block_size = 16;
  options.max_num_seqs = 4;
  options.max_model_len = 64;
  return options;
}

EngineDriverOptions OnDevice(EngineDriverOptions options) {
  options.make_backend = [] {
    return MakeEmulatedCudaBackend({.dtype = DType::kF32, .num_threads = 1}).value();
  };
  return options;
}

std::map<std::string, Transcript> Alone(const std::string& model, uint64_t seed) {
  EngineDriverOptions options = BaseOptions(model);
  options.reference_backend = true;
  AdaptedEngine engine(options, seed);
  std::map<std::string, Transcript> transcripts;
  for (const Sent& sent : Requests()) {
    engine.driver->Add(sent.request.id, sent.request.prompt, sent.request.params, 0,
                       engine.adapters[sent.adapter]);
    engine.driver->RunAll();
    transcripts[sent.request.id] = engine.driver->transcript(sent.request.id);
  }
  return transcripts;
}

void CheckSame(const Transcript& got, const Transcript& expected) {
  REQUIRE(got.error.empty());
  CHECK(got.token_ids == expected.token_ids);
  REQUIRE(got.logprobs.size() == expected.logprobs.size());
  for (size_t i = 0; i < got.logprobs.size(); ++i) {
    CHECK(got.logprobs[i] == Approx(expected.logprobs[i]).margin(2e-3));
  }
  CHECK(got.prompt_logprobs.token_ids == expected.prompt_logprobs.token_ids);
}

void RunMixed(AdaptedEngine* engine) {
  for (const Sent& sent : Requests()) {
    engine->driver->Add(sent.request.id, sent.request.prompt, sent.request.params, 0,
                        engine->adapters[sent.adapter]);
    engine->driver->Step();
  }
  engine->driver->RunAll();
}

// Number of graphs replayed.
int64_t Check(const EngineDriverOptions& options, uint64_t seed,
              const std::map<std::string, Transcript>& alone) {
  CAPTURE(options.model_dir, options.graph_sizes.size(), options.async_scheduling,
          options.max_loras, options.speculation.drafts());
  AdaptedEngine engine(OnDevice(options), seed);
  RunMixed(&engine);
  for (const auto& [id, expected] : alone) {
    INFO("request " << id);
    CheckSame(engine.driver->transcript(id), expected);
  }
  CHECK(engine.driver->runner().num_adapter_loads() >= kNumTestAdapters);
  return engine.driver->runner().num_replays();
}

}  // namespace

TEST_CASE("emulated cuda: adapters write in a mixed batch what each writes alone") {
  constexpr uint64_t kSeed = 3;
  const auto alone = Alone("llama_plain", kSeed);
  // They differ from the base and from one another.
  const EngineDriverOptions base = BaseOptions("llama_plain");
  CHECK(Check(base, kSeed, alone) == 0);

  EngineDriverOptions options = base;
  options.graph_sizes = {1, 2, 4};
  CHECK(Check(options, kSeed, alone) > 10);

  options.async_scheduling = true;
  options.max_loras = 2;  // some leave the device and come back
  CHECK(Check(options, kSeed, alone) > 10);

  options.num_blocks = 7;  // too few for four requests
  CHECK(Check(options, kSeed, alone) > 0);

  options.speculation =
      ParseSpeculativeConfig(
          R"({"method": "ngram", "num_speculative_tokens": 3, "adaptive": false})")
          .value();
  Check(options, kSeed, alone);
}

TEST_CASE("emulated cuda: adapters of a mixture's experts, of merged and of latent matrices") {
  for (const char* model : {"qwen3_moe", "phi3_partial_rotary", "deepseek_v2"}) {
    constexpr uint64_t kSeed = 8;
    const auto alone = Alone(model, kSeed);
    EngineDriverOptions options = BaseOptions(model);
    options.graph_sizes = {4};
    CHECK(Check(options, kSeed, alone) > 0);
  }
}

}  // namespace tandem
