// Drafts on an emulated CUDA device change no output: tokens, reasons to stop, logprobs and ranks
// are those of the same device without drafts, whatever is sampled, cut, cached or preempted.

#include <algorithm>
#include <string>
#include <vector>

#include "engine_core/models/registry.h"
#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/files/head_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr double kLogprobMargin = 1e-3;

// Few tokens repeat themselves soon, so that there is something to draft.
std::vector<TestRequest> Requests() {
  constexpr int kNumRequests = 8;
  std::vector<TestRequest> requests;
  for (int i = 0; i < kNumRequests; ++i) {
    TestRequest& r = requests.emplace_back();
    r.id = std::to_string(i);
    for (int t = 0; t < 6 + 3 * i; ++t) r.prompt.push_back(t < 16 ? 4 + t % 3 : 3 + (5 * t) % 7);
    r.arrival_step = i;
    r.params = GreedyParams(10 + i);
    r.params.allowed_token_ids = {4, 5, 6};
    if (i % 2 == 0) continue;
    r.params.temperature = 0.8;
    r.params.seed = 40 + i;
  }
  requests[1].params.logprobs = 2;
  requests[2].params.frequency_penalty = 0.3;
  requests[2].params.repetition_penalty = 1.1;
  requests[3].params.presence_penalty = 0.2;
  requests[3].params.bad_words_token_ids = {{5, 4}};
  requests[4].params.all_stop_token_ids = requests[4].params.stop_token_ids = {5};
  requests[4].params.min_tokens = 4;
  // More rows of logits than are made at a time, beside rows after drafts.
  requests[5].params.prompt_logprobs = 1;
  // The device leaves it to the host.
  requests[6].params.logprobs = kMaxDeviceLogprobs + 1;
  requests[7].params.top_p = 0.9;
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
  options.make_backend = [] {
    return MakeEmulatedCudaBackend({.dtype = DType::kF32, .num_threads = 1}).value();
  };
  return options;
}

// The ids of a row, each with a logprob that is the other's at its place: sums of another batch
// differ in their last bits, so tokens that are as good as equally likely may change places.
void CheckSameRow(const wire::LogprobsRows& got, const wire::LogprobsRows& expected) {
  REQUIRE(got.token_ids.size() == expected.token_ids.size());
  REQUIRE(got.logprobs.size() == got.token_ids.size());
  auto ids = got.token_ids, expected_ids = expected.token_ids;
  std::ranges::sort(ids);
  std::ranges::sort(expected_ids);
  CHECK(ids == expected_ids);
  for (size_t i = 0; i < got.logprobs.size(); ++i) {
    CAPTURE(i);
    CHECK(got.logprobs[i] == Approx(expected.logprobs[i]).margin(kLogprobMargin));
    if (got.token_ids[i] == expected.token_ids[i]) continue;
    const auto its = std::ranges::find(expected.token_ids, got.token_ids[i]);
    if (its == expected.token_ids.end()) continue;
    const auto place = static_cast<size_t>(its - expected.token_ids.begin());
    CHECK(expected.logprobs[place] == Approx(got.logprobs[i]).margin(kLogprobMargin));
  }
}

void CheckSame(const Transcript& got, const Transcript& expected) {
  REQUIRE(got.error == expected.error);
  CHECK(got.finished);
  CHECK(got.token_ids == expected.token_ids);
  CHECK(got.finish_reason == expected.finish_reason);
  CHECK(got.stop_reason == expected.stop_reason);
  CHECK(got.prompt_logprobs.token_ids == expected.prompt_logprobs.token_ids);
  REQUIRE(got.rows.size() == expected.rows.size());
  for (size_t i = 0; i < got.rows.size(); ++i) {
    CAPTURE(i);
    CheckSameRow(got.rows[i], expected.rows[i]);
    CHECK(got.rows[i].ranks == expected.rows[i].ranks);
    CHECK(got.logprobs[i] == Approx(expected.logprobs[i]).margin(kLogprobMargin));
  }
}

}  // namespace

TEST_CASE("emulated cuda: drafts change no output, with states either") {
  const std::string model = GENERATE("llama_plain", "qwen3_5_text");
  CAPTURE(model);
  const std::vector<TestRequest> requests = Requests();
  EngineDriver plain(BaseOptions(model));
  RunTogether(&plain, requests);
  int64_t num_accepted = 0, num_rejected = 0, num_replays = 0;
  int num_preemptions = 0;
  for (const int world : {0, 1, 2, 3}) {
    CAPTURE(world);
    EngineDriverOptions options = BaseOptions(model);
    options.speculation = {.method = world == 2 ? DraftMethod::kSuffix : DraftMethod::kNgram,
                           .num_speculative_tokens = 1 + world,
                           .prompt_lookup_min = 1,
                           .prompt_lookup_max = 3,
                           .adaptive = world == 3};
    options.async_scheduling = world == 1;
    if (world > 0) options.graph_sizes = {1, 2, 4};
    if (world == 2) options.num_blocks = 7;
    EngineDriver engine(options);
    RunTogether(&engine, requests);
    const auto stats = engine.scheduler().TakeStats().spec_decoding_stats;
    REQUIRE((stats || world == 3));
    if (stats) num_accepted += stats->num_accepted_tokens;
    if (stats) num_rejected += stats->num_draft_tokens - stats->num_accepted_tokens;
    num_replays += engine.runner().num_replays();
    for (const TestRequest& r : requests) {
      INFO("request " << r.id);
      num_preemptions += engine.transcript(r.id).num_preemptions;
      CheckSame(engine.transcript(r.id), plain.transcript(r.id));
    }
  }
  CHECK(num_accepted > 30);
  CHECK(num_rejected > 30);
  CHECK(num_replays > 0);
  CHECK(num_preemptions > 0);
}

// ---- drafters with a model ----

const std::string kHeads = TANDEM_GOLDEN_DIR "/speculative";  // trained for the target beside them
const std::string kTarget = kHeads + "/target";

struct DrafterCase {
  DraftMethod method;
  std::string model;
  bool repeats_ops = true;  // its passes are replayed
};

// Two that are right more often than not, and heads of random numbers.
std::vector<DrafterCase> Drafters(const TempFolder& folder) {
  const ModelConfig target = ReadModelConfig(kTarget).value();
  WriteHead(folder, "eagle3",
            {.is_eagle3 = true,
             .hidden_size = target.hidden_size,
             .vocab_size = target.vocab_size,
             .draft_vocab_size = target.vocab_size / 2},
            4);
  WriteMedusa(folder, "medusa",
              {.hidden_size = target.hidden_size,
               .vocab_size = target.vocab_size,
               .num_heads = 3,
               .has_target_tables = true},
              5);
  WriteMtp(folder, "mtp",
           {.hidden_size = target.hidden_size,
            .inner_size = target.intermediate_size,
            .q_size = target.num_heads * target.head_dim,
            .kv_size = target.num_kv_heads * target.head_dim,
            .num_layers = target.num_layers},
           6);
  return {{DraftMethod::kDraftModel, kTarget},
          {DraftMethod::kEagle, kHeads + "/eagle"},
          {DraftMethod::kEagle3, kHeads + "/eagle3"},
          {DraftMethod::kEagle3, folder.PathOf("eagle3")},
          {DraftMethod::kMtp, folder.PathOf("mtp")},
          {DraftMethod::kMedusa, folder.PathOf("medusa"), false}};
}

EngineDriverOptions WithDrafter(EngineDriverOptions options, const DrafterCase& drafter) {
  options.speculation = {.method = drafter.method,
                         .num_speculative_tokens = 3,
                         .adaptive = false,
                         .model = drafter.model};
  return options;
}

// Short ones: a step with a drafter is many emulated kernels.
std::vector<TestRequest> FewRequests() {
  std::vector<TestRequest> requests = Requests();
  requests.resize(5);
  for (TestRequest& r : requests) r.params.max_tokens = std::min(r.params.max_tokens, 10);
  return requests;
}

int64_t NumAccepted(EngineDriver* engine) {
  const auto stats = engine->scheduler().TakeStats().spec_decoding_stats;
  return stats ? stats->num_accepted_tokens : 0;
}

TEST_CASE("emulated cuda: drafts of models and of heads change no output") {
  const std::vector<TestRequest> requests = FewRequests();
  EngineDriverOptions base = BaseOptions("llama_plain");
  base.model_dir = kTarget;
  EngineDriver plain(base);
  RunTogether(&plain, requests);
  const TempFolder folder;
  int world = 0;
  for (const DrafterCase& drafter : Drafters(folder)) {
    for (const bool draws : {false, true}) {
      if (draws && world > 4) continue;
      CAPTURE(drafter.model, static_cast<int>(drafter.method), draws);
      EngineDriverOptions options = WithDrafter(base, drafter);
      options.speculation.draws_drafts = draws;
      options.speculation.hashes_next_token = world % 2 == 0;
      options.async_scheduling = ++world % 2 == 0;
      if (world % 3 > 0) options.graph_sizes = {1, 2, 4};
      if (world % 4 == 1) options.num_blocks = 8;
      options.speculation.enforce_eager = drafter.method == DraftMethod::kEagle3;
      EngineDriver engine(options);
      RunTogether(&engine, requests);
      for (const TestRequest& r : requests) {
        INFO("request " << r.id);
        CheckSame(engine.transcript(r.id), plain.transcript(r.id));
      }
      const bool replays = !draws && drafter.repeats_ops && !options.graph_sizes.empty() &&
                           !options.speculation.enforce_eager;
      CHECK((engine.runner().num_replayed_passes() > 0) == replays);
    }
  }
}

// Guesses depend on the request's tokens alone.
TEST_CASE("emulated cuda: models and heads guess what they guess on the cpu") {
  std::vector<TestRequest> requests = FewRequests();
  for (TestRequest& r : requests) {
    r.params = GreedyParams(r.params.max_tokens);
    r.params.allowed_token_ids = {};
  }
  EngineDriverOptions base = BaseOptions("llama_plain");
  base.model_dir = kTarget;
  base.enable_prefix_caching = false;
  const TempFolder folder;
  for (const DrafterCase& drafter : Drafters(folder)) {
    CAPTURE(drafter.model, static_cast<int>(drafter.method));
    EngineDriverOptions on_cpu = WithDrafter(base, drafter);
    on_cpu.make_backend = nullptr;
    on_cpu.block_size = 32;
    EngineDriver cpu(on_cpu);
    RunTogether(&cpu, requests);
    const int64_t expected = NumAccepted(&cpu);
    const bool is_trained = drafter.model.starts_with(kHeads);
    if (is_trained) CHECK(expected > 0);
    EngineDriverOptions options = WithDrafter(base, drafter);
    options.graph_sizes = {2, 4};
    EngineDriver engine(options);
    RunTogether(&engine, requests);
    CHECK(NumAccepted(&engine) == expected);
  }
}

}  // namespace tandem
