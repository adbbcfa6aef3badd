// Steps of a made-up machine: the pace learns what they take, and prompts are cut to the limit.

#include "engine_core/scheduler/prefill_pace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/scheduler.h"
#include "engine_core/scheduler/step_plan.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int32_t kNoLimit = PrefillPace::kNoLimit;

// Seconds of a step on that machine.
double TimeOf(int32_t num_decodes, int32_t num_prefill_tokens) {
  return (num_decodes > 0 ? 0.010 : 0) + 0.0002 * num_decodes + 0.0005 * num_prefill_tokens;
}

void Run(PrefillPace* pace, int32_t num_decodes, int32_t num_prefill_tokens) {
  pace->Observe(num_decodes, num_prefill_tokens, TimeOf(num_decodes, num_prefill_tokens));
}

// What steps without prompts take is known after two looks.
void Look(PrefillPace* pace, int32_t num_decodes) {
  for (int i = 0; i < 2; ++i) Run(pace, num_decodes, 0);
}

TEST_CASE("PrefillPace: without a limit, or with nobody to delay, a step takes what it likes") {
  PrefillPace off({});
  CHECK_FALSE(off.is_on());
  CHECK(off.TokensOfNextStep(8) == kNoLimit);
  PrefillPace pace({.seconds = 0.05});
  CHECK(pace.is_on());
  CHECK(pace.TokensOfNextStep(0) == kNoLimit);
}

TEST_CASE(
    "PrefillPace: a step of a new size runs without prompts first, but prompts do not wait for "
    "ever") {
  PrefillPace pace({.seconds = 0.05});
  for (int i = 0; i < 2; ++i) {
    CHECK(pace.TokensOfNextStep(8) == 0);
    Run(&pace, 8, 0);
  }
  CHECK(pace.TokensOfNextStep(8) > 0);
  CHECK(pace.TokensOfNextStep(5) > 0);  // of the same size
  std::vector<int32_t> seen;
  for (int i = 0; i < 8; ++i) seen.push_back(pace.TokensOfNextStep(64));  // never observed
  CHECK(std::ranges::count(seen, 0) == 4);
  CHECK(seen.back() > 0);
}

TEST_CASE("PrefillPace: the tokens fill the time that the limit leaves") {
  PrefillPace pace({.seconds = 0.05});
  Run(&pace, 0, 512);
  Look(&pace, 8);
  const int32_t num_tokens = pace.TokensOfNextStep(8);
  CHECK(TimeOf(8, num_tokens) <= 0.05);
  CHECK(TimeOf(8, num_tokens + 32) > 0.05);
  SECTION("with a limit in decode steps as well, the larger one counts") {
    PrefillPace ratio({.seconds = 0.02, .decode_steps = 3});
    Run(&ratio, 0, 512);
    Look(&ratio, 8);
    const double limit = 3 * TimeOf(8, 0);
    CHECK(TimeOf(8, ratio.TokensOfNextStep(8)) <= limit);
    CHECK(TimeOf(8, ratio.TokensOfNextStep(8) + 32) > limit);
  }
  SECTION("a machine that becomes slower is followed, and one that becomes faster") {
    for (const double factor : {4.0, 0.5}) {
      for (int i = 0; i < 100; ++i) {
        const int32_t next = pace.TokensOfNextStep(8);
        pace.Observe(8, next, factor * TimeOf(8, next));
      }
      INFO(factor);
      const int32_t learned = pace.TokensOfNextStep(8);
      if (learned == 0) continue;
      const bool is_least = learned == PrefillPace::kLeastTokens;
      CHECK((is_least || factor * TimeOf(8, learned) < 0.055));
      CHECK(factor * TimeOf(8, learned + 48) > 0.05);
    }
  }
}

TEST_CASE("PrefillPace: a step that took far too long changes little, the first one too") {
  PrefillPace pace({.seconds = 0.02, .decode_steps = 3});
  Run(&pace, 0, 512);
  const double limit = 3 * TimeOf(8, 0);
  pace.Observe(8, 0, 0.5);  // pages are touched for the first time
  CHECK(pace.TokensOfNextStep(8) == 0);
  Run(&pace, 8, 0);
  const int32_t num_tokens = pace.TokensOfNextStep(8);
  CHECK(TimeOf(8, num_tokens) <= limit);
  CHECK(TimeOf(8, num_tokens + 32) > limit);
  pace.Observe(8, 0, 5);  // the process was stopped
  CHECK(pace.TokensOfNextStep(8) == 0);
  Run(&pace, 8, 0);
  CHECK(pace.TokensOfNextStep(8) == num_tokens);
  SECTION("two that agree are believed") {
    for (const double factor : {4.0, 0.25}) {
      INFO(factor);
      for (int i = 0; i < 2; ++i) pace.Observe(8, 0, factor * TimeOf(8, 0));
      for (int i = 0; i < 100; ++i) pace.Observe(8, 64, factor * TimeOf(8, 0) + 64 * 0.0005);
      for (int i = 0; i < 2; ++i) pace.Observe(8, 0, factor * TimeOf(8, 0));
      const double time_left = std::max(0.02, 3 * factor * TimeOf(8, 0)) - factor * TimeOf(8, 0);
      CHECK(std::abs(pace.TokensOfNextStep(8) * 0.0005 - time_left) < 0.009);
    }
  }
}

TEST_CASE("PrefillPace: a clock that stands still holds no prompt back for ever") {
  PrefillPace pace({.seconds = 0.05});
  for (int i = 0; i < 3; ++i) pace.Observe(8, 0, 0);
  CHECK(pace.TokensOfNextStep(8) > 0);
}

TEST_CASE("PrefillPace: prompts go on under a limit that no step can keep") {
  PrefillPace pace({.seconds = 0.001});
  Run(&pace, 0, 512);
  Look(&pace, 8);
  CHECK(pace.TokensOfNextStep(8) == PrefillPace::kLeastTokens);
}

TEST_CASE("PrefillPace: with prompts in every step one in some 64 has none") {
  PrefillPace pace({.seconds = 0.05});
  Look(&pace, 8);
  std::map<bool, int> num_steps;
  for (int i = 0; i < 650; ++i) {
    const int32_t num_tokens = pace.TokensOfNextStep(8);
    ++num_steps[num_tokens == 0];
    Run(&pace, 8, num_tokens);
  }
  CHECK(num_steps[true] == 10);
}

constexpr StepTimeLimit kGrowing = {.seconds = 0.02, .decode_steps = 3, .most_decode_steps = 25};

TEST_CASE("PrefillPace: where prompts are in most steps the limit grows, and comes back") {
  PrefillPace pace(kGrowing);
  Run(&pace, 0, 512);
  Look(&pace, 8);
  const double decode_step = TimeOf(8, 0);
  CHECK(TimeOf(8, pace.TokensOfNextStep(8)) <= 3 * decode_step);
  const auto run = [&pace](int num_steps, bool has_prompts) {
    for (int i = 0; i < num_steps; ++i) Run(&pace, 8, has_prompts ? pace.TokensOfNextStep(8) : 0);
    if (pace.TokensOfNextStep(8) == 0) Run(&pace, 8, 0);
    return TimeOf(8, pace.TokensOfNextStep(8));
  };
  const double grown = run(200, true);
  CHECK(grown <= 25 * decode_step);
  CHECK(grown > 24 * decode_step);
  CHECK(run(120, false) <= 3 * decode_step);
  // One step in three has prompts.
  for (int i = 0; i < 100; ++i) run(1, true), run(2, false);
  CHECK(run(1, false) <= 3.2 * decode_step);
}

// Prompts arrive beside 8 streams for as many steps; waiting is how many tokens of theirs wait.
struct Load {
  std::vector<double> steps;
  double seconds = 0;
  int64_t num_tokens = 0;
};

Load RunLoad(const StepTimeLimit& limit, uint64_t seed, int32_t longest_prompt, int32_t gap) {
  std::mt19937_64 draw(seed);
  PrefillPace pace(limit);
  Load load;
  int64_t waiting = 0;
  for (int i = 0; i < 6000; ++i) {
    const auto longest = static_cast<uint64_t>(longest_prompt);
    if (gap == 0 && waiting == 0) waiting = longest_prompt;
    if (gap > 0 && draw() % static_cast<uint64_t>(gap) == 0) {
      waiting += static_cast<int64_t>(1 + draw() % longest);
    }
    const int64_t most = waiting > 0 ? std::min(pace.TokensOfNextStep(8), 2048) : 0;
    const auto num_tokens = static_cast<int32_t>(std::min(waiting, most));
    const double seconds =
        TimeOf(8, num_tokens) * (0.9 + 0.001 * static_cast<double>(draw() % 200));
    pace.Observe(8, num_tokens, seconds);
    waiting -= num_tokens;
    load.steps.push_back(seconds);
    load.seconds += seconds;
    load.num_tokens += num_tokens;
  }
  std::ranges::sort(load.steps);
  return load;
}

TEST_CASE("PrefillPace: pauses are even where prompts are short and rare, and bounded everywhere") {
  const auto share_of_time = [](const Load& load) {
    return 0.0005 * static_cast<double>(load.num_tokens) / load.seconds;
  };
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const int32_t longest = std::array{64, 300, 2000, 8000}[seed % 4];
    const int32_t gap = std::array{5, 20, 100, 400, 0}[seed % 5];
    INFO("seed " << seed << ", prompts up to " << longest << ", one in " << gap << " steps");
    const Load load = RunLoad(kGrowing, seed, longest, gap);
    CHECK(load.steps[5940] <= 1.15 * 25 * TimeOf(8, 0));  // times vary by a tenth
    if (gap >= 20 && longest <= 300) CHECK(load.steps[5940] <= 3.5 * load.steps[3000]);
    // Prompts without an end have nearly the time that they have without a limit.
    if (gap == 0 && longest >= 2000) {
      CHECK(share_of_time(load) >= 0.93 * share_of_time(RunLoad({}, seed, longest, gap)));
      CHECK(load.steps[5940] <= 1.2 * load.steps[3000]);
    }
  }
}

TEST_CASE("PrefillPace: a checkpoint has all that it decides by") {
  PrefillPace pace(kGrowing, {.seconds = 0.05});
  Look(&pace, 4);
  for (int i = 0; i < 40; ++i) Run(&pace, 4, 512);  // the median rises
  Run(&pace, 0, 512);
  Look(&pace, 8);
  pace.Observe(0, 16, 0.05, 10);
  std::array<char, 1024> memory{};
  ByteWriter writer(memory);
  pace.Save(&writer);
  REQUIRE(writer.fits());
  PrefillPace loaded(kGrowing, {.seconds = 0.05});
  ByteReader reader({memory.data(), writer.size()});
  loaded.Load(&reader);
  REQUIRE(reader.ok());
  for (const int32_t num_decodes : {1, 8, 8, 8}) {
    CHECK(loaded.TokensOfNextStep(num_decodes) == pace.TokensOfNextStep(num_decodes));
    CHECK(loaded.SlicesOfNextStep(num_decodes) == pace.SlicesOfNextStep(num_decodes));
  }
  CHECK(pace.SlicesOfNextStep(8) > 1);
}

// A slice takes 4 ms there.
TEST_CASE("PrefillPace: slices fill the time of images, also where nobody decodes") {
  PrefillPace off({.seconds = 0.05});
  CHECK(off.SlicesOfNextStep(8) == kNoLimit);
  PrefillPace pace({}, {.seconds = 0.02, .decode_steps = 3});
  CHECK(pace.is_on());
  CHECK(pace.TokensOfNextStep(8) == kNoLimit);
  CHECK(pace.SlicesOfNextStep(8) == 1);  // nothing is known
  Look(&pace, 8);
  pace.Observe(8, 0, TimeOf(8, 0) + 0.004, 1);
  CHECK(pace.SlicesOfNextStep(0) == 5);
  CHECK(pace.SlicesOfNextStep(8) == 5);  // of 34.8 ms, less the decodes' 11.6
  SECTION("a machine that becomes slower is followed") {
    for (int i = 0; i < 50; ++i) {
      const int32_t num_slices = pace.SlicesOfNextStep(0);
      pace.Observe(0, 0, 0.015 * num_slices, num_slices);
    }
    CHECK(pace.SlicesOfNextStep(0) == 1);
    CHECK(pace.SlicesOfNextStep(64) == 1);  // at least
  }
  SECTION("what prompt tokens take beside them is not counted") {
    PrefillPace both({.seconds = 0.05}, {.seconds = 0.05});
    Run(&both, 0, 512);
    Look(&both, 8);
    both.Observe(8, 32, TimeOf(8, 32) + 0.008, 2);
    Look(&both, 8);
    CHECK(both.SlicesOfNextStep(8) == 9);  // of 38.4 ms
  }
}

TEST_CASE("PrefillPace: prompts and an image under way share the time") {
  PrefillPace pace({.seconds = 0.05}, {.seconds = 0.05});
  Run(&pace, 0, 512);
  Look(&pace, 8);
  pace.Observe(8, 32, TimeOf(8, 32) + 0.008, 2);
  const int32_t num_slices = pace.SlicesOfNextStep(8);
  const int32_t num_tokens = pace.TokensOfNextStep(8, /*is_image_under_way=*/true);
  CHECK(num_slices == 4);
  CHECK(num_tokens < pace.TokensOfNextStep(8));
  CHECK(TimeOf(8, num_tokens) + 0.004 * num_slices <= 0.05);
  CHECK(TimeOf(8, num_tokens + 48) + 0.004 * num_slices > 0.05);
  CHECK(pace.SlicesOfNextStep(0) == 12);  // prompts alone have no limit
}

TEST_CASE("an image that took more than the step's prefills may leaves nothing, not less") {
  StepPlan plan(2);
  Request request({}, 0, {});
  plan.Begin(0, {.prefill_tokens = 6});
  plan.AddRunning(&request, 8, 0, /*is_prefill=*/true);
  CHECK(plan.prefill_tokens() == 0);
}

TEST_CASE("what a victim's prompt was given is there for the prompts after it") {
  StepPlan plan(2);
  Request victim({}, 0, {}), decoding({}, 1, {});
  const int32_t num_given = GENERATE(4, 8);  // 8: an image that had to be whole
  plan.Begin(0, {.budget_tokens = 20, .input_tokens = 20, .prefill_tokens = 6});
  plan.AddRunning(&victim, num_given, 0, /*is_prefill=*/true);
  plan.AddRunning(&decoding, 1, 0, /*is_prefill=*/false);
  CHECK(plan.TryTakeBack(&victim));
  CHECK(plan.prefill_tokens() == 6);
  CHECK(plan.budget_tokens() == 19);
}

// Requests that decode while two prompts of 400 tokens arrive.
struct Outcome {
  double longest_step = 0;  // in which somebody decodes
  int num_steps = 0;        // until both prompts are computed
  bool has_ended = false;
};

KvCacheConfig CacheOfRun() {
  KvCacheConfig cache;
  cache.num_blocks = 400;
  cache.block_size = 16;
  cache.max_num_seqs = 16;
  cache.max_model_len = 600;
  return cache;
}

SchedulerConfig ConfigOfRun(const StepTimeLimit& limit) {
  SchedulerConfig config;
  config.max_num_seqs = 16;
  config.max_num_batched_tokens = 512;
  config.max_model_len = 600;
  config.vocab_size = 100;
  config.step_time_limit = limit;
  return config;
}

void Add(Scheduler* scheduler, const std::string& id, size_t num_tokens, int32_t max_tokens) {
  wire::EngineCoreRequest request;
  request.request_id = id;
  request.prompt_token_ids.assign(num_tokens, static_cast<TokenId>(id[0] - 'a'));
  request.sampling_params.max_tokens = max_tokens;
  REQUIRE(scheduler->Add(std::move(request), 0).ok());
}

// num_pipeline_steps are under way at once.
Outcome RunPrompts(const StepTimeLimit& limit, int num_decodes = 2, size_t num_pipeline_steps = 1) {
  KvCacheManager kv(CacheOfRun());
  SchedulerConfig config = ConfigOfRun(limit);
  config.num_pipeline_steps = static_cast<int32_t>(num_pipeline_steps);
  Scheduler scheduler(config, &kv);
  ClientOutputs outputs;
  Outcome outcome;
  for (int i = 0; i < num_decodes; ++i) {
    Add(&scheduler, std::string(1, static_cast<char>('c' + i)), 8, 150);
  }
  std::deque<const SchedulerOutput*> under_way;
  for (int i = 0; i < 800; ++i) {
    if (i == 40) Add(&scheduler, "a", 400, 150);
    if (i == 40) Add(&scheduler, "b", 400, 150);
    const SchedulerOutput& scheduled = scheduler.Schedule(i);
    if (scheduled.has_work()) under_way.push_back(&scheduled);
    const bool may_add = under_way.size() < num_pipeline_steps && scheduled.has_work();
    if (under_way.empty() || may_add) continue;
    const SchedulerOutput& step = *under_way.front();
    under_way.pop_front();
    const auto num_decoding = static_cast<int32_t>(step.requests.size()) - step.num_prefills;
    const double seconds = TimeOf(num_decoding, step.num_prefill_tokens);
    if (i >= 40 && num_decoding > 0) outcome.longest_step = std::max(outcome.longest_step, seconds);
    if (i >= 40 && step.num_prefills > 0) outcome.num_steps = i - 39;
    ModelOutput result;
    for (const ScheduledRequest& request : step.requests) {
      result.sampled_token_ids.push_back(request.needs_sample ? 9 : kNoToken);
    }
    scheduler.ObserveStep(step, seconds);
    scheduler.Update(step, &result, &outputs);
  }
  outcome.has_ended = scheduler.num_requests() == 0;
  return outcome;
}

TEST_CASE("a limit of the step's time cuts prompts beside decodes, in the order of their arrival") {
  const Outcome without = RunPrompts({});
  CHECK(without.has_ended);
  CHECK(without.longest_step > 0.2);
  CHECK(without.num_steps == 2);
  const Outcome with = RunPrompts({.seconds = 0.05});
  CHECK(with.has_ended);
  CHECK(with.longest_step <= 0.05);
  // 800 tokens, some 76 beside each decode step of 10 ms
  CHECK(with.num_steps >= 11);
  CHECK(with.num_steps <= 16);
}

TEST_CASE(
    "a limit of the step's time counts the requests of a step, where a pipeline has several") {
  const Outcome outcome = RunPrompts({.seconds = 0.05}, 8, 2);
  CHECK(outcome.has_ended);
  CHECK(outcome.longest_step <= 0.05);
  CHECK(outcome.longest_step > 0.04);
}

TEST_CASE("a limit of the step's time: a request whose last token is under way delays no prompt") {
  KvCacheManager kv(CacheOfRun());
  SchedulerConfig config = ConfigOfRun({.seconds = 0.05});
  config.overlaps_steps = true;
  Scheduler scheduler(config, &kv);
  Add(&scheduler, "a", 300, 1);
  CHECK(scheduler.Schedule(0).num_prefill_tokens == 300);
  Add(&scheduler, "b", 300, 1);
  CHECK(scheduler.Schedule(1).num_prefill_tokens == 300);
}

}  // namespace
}  // namespace tandem
