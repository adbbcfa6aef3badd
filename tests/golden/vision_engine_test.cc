// Images through the whole engine below its process: the wire's form, the checks, the scheduler
// with its encoder cache, the model runner with its tower. First against numbers recorded from HF
// transformers (the set `vision`, which lies in TANDEM_GOLDENS alone), then against itself: however
// a prompt is cut, cached, preempted and batched, the bits are the same.

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_core/executor/mrope_positions.h"
#include "engine_core/models/rank_share.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/golden_logits.h"
#include "tests/support/vision_cases.h"
#include "tests/support/vision_images.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

constexpr double kTolerance = 2e-3;
constexpr int32_t kNumOutputs = 16;

using Case = VisionCase;

Case WithOtherImages(const std::string& folder, const Case& one) {
  const auto config = ReadModelConfig(folder);
  Case other =
      ReadVisionCase(folder, GoldenLogits(folder, "tensors.safetensors"),
                     ImageLimitsOf(config->vision).value(), one.golden, /*is_inverted=*/true);
  other.id = "other";
  return other;
}

wire::SamplingParams AllLogitsGreedy() {
  wire::SamplingParams params = GreedyParams(kNumOutputs);
  params.logprobs = -1;
  return params;
}

EngineDriverOptions Options(const std::string& folder) {
  EngineDriverOptions options;
  options.model_dir = folder;
  options.logprobs_mode = LogprobsMode::kRawLogits;
  return options;
}

void Add(EngineDriver* engine, const Case& one) {
  engine->Add(one.id, one.prompt, AllLogitsGreedy(), 0, {}, one.images);
}

using Answers = std::map<std::string, Transcript>;

Answers RunAll(EngineDriver* engine, const std::vector<Case>& cases) {
  engine->Forget();
  for (const Case& one : cases) Add(engine, one);
  engine->RunAll();
  Answers answers;
  for (const Case& one : cases) {
    answers[one.id] = engine->transcript(one.id);
    REQUIRE(answers[one.id].finished);
    REQUIRE(answers[one.id].error.empty());
  }
  CHECK(engine->scheduler().encoder_cache().num_held() == 0);
  CHECK(engine->runner().num_kept_image_rows() == engine->scheduler().encoder_cache().num_kept());
  return answers;
}

// Each alone.
Answers RunOneByOne(const EngineDriverOptions& options, const std::vector<Case>& cases) {
  EngineDriver engine(options);
  Answers answers;
  for (const Case& one : cases) answers.merge(RunAll(&engine, {one}));
  return answers;
}

bool HaveSameBits(const Transcript& a, const Transcript& b) {
  if (a.token_ids != b.token_ids || a.rows.size() != b.rows.size()) return false;
  for (size_t i = 0; i < a.rows.size(); ++i) {
    if (!(a.rows[i] == b.rows[i])) return false;
  }
  return true;
}

void CheckSame(const Answers& answers, const Answers& expected) {
  for (const auto& [id, answer] : answers) {
    CAPTURE(id);
    CHECK(HaveSameBits(answer, expected.at(id)));
  }
}

TEST_CASE("images through the engine: logits and greedy tokens are HF's in float32") {
  for (const std::string& folder : VisionFolders()) {
    const std::vector<Case> cases = ReadVisionCases(folder);
    const GoldenLogits tensors(folder, "tensors.safetensors");
    const Answers answers = RunOneByOne(Options(folder), cases);
    for (const Case& one : cases) {
      CAPTURE(folder, one.id);
      const Transcript& answer = answers.at(one.id);
      REQUIRE(answer.rows.size() == kNumOutputs);
      const std::vector<float> expected = tensors.Get("f32." + one.id);
      CHECK(MaxDifference(LogitsByToken(answer.rows[0]), expected.data()) <= kTolerance);
      CHECK(answer.token_ids == one.golden["greedy_ids"].get<std::vector<TokenId>>());
      const auto top = one.golden["last_top5"][0].get<std::vector<TokenId>>();
      const std::vector<TokenId>& ids = answer.rows[0].token_ids;
      CHECK(std::vector<TokenId>(ids.begin() + 1, ids.begin() + 6) == top);
    }
  }
}

TEST_CASE("images through the engine: the bits are the same however a prompt runs") {
  for (const std::string& folder : VisionFolders()) {
    CAPTURE(folder);
    const std::vector<Case> cases = ReadVisionCases(folder);
    const bool is_whole = folder.find("gemma") != std::string::npos;
    EngineDriverOptions options = Options(folder);
    options.enable_prefix_caching = false;
    const Answers expected = RunOneByOne(options, cases);
    for (const int32_t max_tokens : {7, 16, 33}) {  // per step; images have up to 16
      if (is_whole && max_tokens < 16) continue;
      CAPTURE(max_tokens);
      options.max_num_batched_tokens = max_tokens;
      CheckSame(RunOneByOne(options, cases), expected);
      EngineDriver together(options);
      CheckSame(RunAll(&together, cases), expected);
    }
    options = Options(folder);
    options.num_threads = 2;
    options.async_scheduling = true;
    options.needs_whole_images = true;
    options.max_num_batched_tokens = 40;
    EngineDriver ahead(options);
    CheckSame(RunAll(&ahead, cases), expected);
  }
}

TEST_CASE("images through the engine: a prefix is found with its images, and not with others") {
  for (const std::string& folder : VisionFolders()) {
    CAPTURE(folder);
    const std::vector<Case> cases = ReadVisionCases(folder);
    EngineDriverOptions options = Options(folder);
    options.enable_prefix_caching = false;
    const Answers expected = RunOneByOne(options, cases);
    const Case other = WithOtherImages(folder, cases[0]);
    const Answers other_answer = RunOneByOne(options, {other});
    CHECK_FALSE(HaveSameBits(other_answer.at("other"), expected.at("0")));

    options.enable_prefix_caching = true;
    options.max_num_batched_tokens = 24;
    EngineDriver engine(options);
    CheckSame(RunAll(&engine, cases), expected);
    const Answers again = RunAll(&engine, cases);
    CheckSame(again, expected);
    int num_found = 0;
    for (const auto& [id, answer] : again) num_found += answer.num_cached_tokens > 0;
    CHECK(num_found >= 4);  // blocks have 32 tokens, the shortest prompt 26
    CHECK(again.at("0").num_cached_tokens > 0);
    const Answers of_other = RunAll(&engine, {other});
    CHECK(of_other.at("other").num_cached_tokens == 0);
    CheckSame(of_other, other_answer);
    // Found again in the middle of an image, whose rows are computed again.
    engine.scheduler().ResetEncoderCache();
    CheckSame(RunAll(&engine, cases), expected);
  }
}

TEST_CASE("images through the engine: requests that are preempted come to the same end") {
  for (const std::string& folder : VisionFolders()) {
    CAPTURE(folder);
    const std::vector<Case> cases = ReadVisionCases(folder);
    EngineDriverOptions options = Options(folder);
    options.enable_prefix_caching = false;
    const Answers expected = RunOneByOne(options, cases);
    for (const bool caches : {false, true}) {
      options.enable_prefix_caching = caches;
      options.num_blocks = 1 + 6;  // of 32 tokens; the cases have 2 to 4 each
      options.max_num_batched_tokens = 48;
      EngineDriver engine(options);
      const Answers answers = RunAll(&engine, cases);
      CheckSame(answers, expected);
      int num_preemptions = 0;
      for (const auto& [id, answer] : answers) num_preemptions += answer.num_preemptions;
      CHECK(num_preemptions > 0);
    }
  }
}

TEST_CASE(
    "images through the engine: computed in slices beside other steps they have the same bits") {
  for (const std::string& folder : VisionFolders()) {
    CAPTURE(folder);
    const std::vector<Case> cases = ReadVisionCases(folder), sliced = ReadVisionCases(folder, 0.3);
    EngineDriverOptions options = Options(folder);
    options.enable_prefix_caching = false;
    const Answers expected = RunOneByOne(options, cases);
    options.slices_images = true;
    EngineDriver engine(options);
    CheckSame(RunAll(&engine, sliced), expected);
    options.num_blocks = 1 + 6;  // preempted as well
    options.max_num_batched_tokens = 48;
    EngineDriver tight(options);
    CheckSame(RunAll(&tight, sliced), expected);

    // Aborted when its image is under way: the others have theirs, and nothing is left of it.
    EngineDriver aborting(options);
    Add(&aborting, sliced[0]);
    REQUIRE(aborting.Step());
    CHECK(aborting.scheduler().encoder_cache().is_under_way());
    REQUIRE(aborting.scheduler().Abort(sliced[0].id));
    CHECK_FALSE(aborting.scheduler().encoder_cache().is_under_way());
    CheckSame(RunAll(&aborting, sliced), expected);
  }
}

TEST_CASE("images through the engine: drafts change nothing, and a sleep brings the tower back") {
  for (const std::string& folder : VisionFolders()) {
    CAPTURE(folder);
    const std::vector<Case> cases = ReadVisionCases(folder);
    const Answers expected = RunOneByOne(Options(folder), cases);
    EngineDriverOptions options = Options(folder);
    options.can_sleep = true;
    EngineDriver sleeper(options);
    CheckSame(RunAll(&sleeper, cases), expected);
    const MemoryParts parts = {.weights = true, .kv_cache = true};
    REQUIRE(sleeper.scheduler().ResetPrefixCache(false, 0));
    sleeper.scheduler().ResetEncoderCache();
    REQUIRE(sleeper.runner().Release(parts, /*rereads=*/true).ok());
    REQUIRE(sleeper.runner().Restore(parts).ok());
    CheckSame(RunAll(&sleeper, cases), expected);

    if (ReadModelConfig(folder)->recurrent.num_layers() > 0) continue;  // no drafts are built
    options = Options(folder);
    options.max_num_batched_tokens = 24;
    options.speculation.method = DraftMethod::kNgram;
    options.speculation.num_speculative_tokens = 3;
    options.speculation.prompt_lookup_min = 1;
    options.speculation.prompt_lookup_max = 3;
    options.speculation.adaptive = false;
    EngineDriver drafter(options);
    CheckSame(RunAll(&drafter, cases), expected);
  }
}

// The tower is whole at the engine core's rank; all ranks get what it made.
TEST_CASE("images through the engine: ranks and stages change no bit, nor does a sleep there") {
  for (const std::string& folder : VisionFolders()) {
    const std::vector<Case> cases = ReadVisionCases(folder);
    EngineDriverOptions options = Options(folder);
    options.enable_prefix_caching = false;
    const Answers expected = RunOneByOne(options, cases);
    for (const RankCounts& ranks : {RankCounts{2, 1}, RankCounts{1, 2}, RankCounts{2, 2}}) {
      CAPTURE(folder, ranks.tensor, ranks.pipeline);
      REQUIRE(CheckRanks(*ReadModelConfig(folder), {ranks.tensor, ranks.pipeline}).ok());
      options.ranks = ranks;
      options.can_sleep = true;
      options.max_num_batched_tokens = 40;
      EngineDriver engine(options);
      CheckSame(RunAll(&engine, cases), expected);
      const MemoryParts all = {.weights = true, .kv_cache = true};
      REQUIRE(engine.scheduler().ResetPrefixCache(/*preempt_running=*/false, 0));
      engine.scheduler().ResetEncoderCache();
      REQUIRE(engine.runner().Release(all, /*rereads=*/false).ok());
      REQUIRE(engine.runner().Restore(all).ok());
      CheckSame(RunAll(&engine, cases), expected);
    }
  }
}

TEST_CASE("images through the engine: M-RoPE's positions are HF's, from any place on") {
  for (const std::string& folder : VisionFolders()) {
    CAPTURE(folder);
    const auto config = ReadModelConfig(folder);
    const ImageLimits limits = ImageLimitsOf(config->vision).value();
    if (!limits.have_positions) continue;
    for (const Case& one : ReadVisionCases(folder)) {
      CAPTURE(one.id);
      auto expected = one.golden["mrope_positions"].get<std::vector<std::vector<int32_t>>>();
      const auto length = static_cast<int32_t>(one.prompt.size());
      const int32_t delta = one.golden["mrope_position_delta"];
      for (int32_t p = length; p < length + 20; ++p) {
        for (auto& axis : expected) axis.push_back(p + delta);
      }
      for (int32_t begin = 0; begin < length + 20; ++begin) {
        const auto count = static_cast<size_t>(std::min(9, length + 20 - begin));
        std::vector<int32_t> time(count), height(count), width(count);
        FillMropePositions(one.images.get(), limits.merge_size, begin, {time, height, width});
        const auto part = [&](size_t axis) {
          const auto first = expected[axis].begin() + begin;
          return std::vector<int32_t>(first, first + static_cast<ptrdiff_t>(count));
        };
        CHECK(time == part(0));
        CHECK(height == part(1));
        CHECK(width == part(2));
      }
    }
  }
}

}  // namespace
}  // namespace tandem
