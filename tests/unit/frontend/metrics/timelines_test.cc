// What an engine sends about its requests, as scripts, against intervals that were computed by
// hand. A script is a line per message: the time on the engine's clock, the choice, and what
// happens to it. The frontend reads each message half a second later, on a clock of its own.

#include <map>
#include <memory>
#include <sstream>

#include "exposition_parser.h"
#include "frontend/metrics/request_stats.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr double kEngineClock = 5000;  // of the first engine; each next one's is 10,000 later
constexpr double kFrontendClock = 100;
constexpr double kDelay = 0.5;

// One prompt of 10 tokens with n choices, which arrived at time 0.
class Timeline {
 public:
  explicit Timeline(int n = 1) : fan_out_(&metrics_.engine(0), n) {
    for (int i = 0; i < n; ++i) {
      choices_.push_back(
          std::make_unique<RequestStats>(&metrics_.engine(0), &steps_[0], &fan_out_,
                                         RequestStats::Request{kFrontendClock, 10, 20}));
    }
  }

  // "1.5 0 tokens 1 6 4": time, choice, event and its numbers.
  Timeline& Run(const std::string& script) {
    std::istringstream lines(script);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      double time = 0;
      size_t choice = 0;
      std::string event;
      if (words >> time >> choice >> event) Play(time, choice, event, words);
    }
    for (StepTokens& step : steps_) step.End();
    ExpositionParser page;
    REQUIRE(page.Parse(metrics_.Scrape()).empty());
    page_ = page;
    return *this;
  }

  // Over both engines.
  double Sum(const std::string& name) const { return Value("vllm:" + name + "_sum"); }
  double Count(const std::string& name) const { return Value("vllm:" + name + "_count"); }
  double Total(const std::string& name, std::map<std::string, std::string> labels = {}) const {
    return Value("vllm:" + name + "_total", std::move(labels));
  }

 private:
  void Play(double time, size_t index, const std::string& event, std::istream& words) {
    RequestStats& choice = *choices_.at(index);
    const double engine_time = kEngineClock + 10'000 * num_deaths_ + time;
    const double now = kFrontendClock + time + kDelay;
    if (event == "queued") {
      choice.OnEvent(RequestEvent::kQueued, engine_time);
    } else if (event == "scheduled") {
      choice.OnEvent(RequestEvent::kScheduled, engine_time);
    } else if (event == "preempted") {
      choice.OnEvent(RequestEvent::kPreempted, engine_time);
    } else if (event == "tokens") {
      int64_t count = 0, computed = 0, cached = 0;
      words >> count;
      const bool has_prompt = static_cast<bool>(words >> computed >> cached);
      choice.OnTokens(count, engine_time, now,
                      has_prompt ? std::optional(PromptCounts{computed, cached, 0}) : std::nullopt);
    } else if (event == "stop") {
      choice.OnFinished(FinishedReason::kStop, now);
    } else if (event == "length") {
      choice.OnFinished(FinishedReason::kLength, now);
    } else if (event == "abort") {
      choice.OnClientAbort();
    } else if (event == "error") {
      choice.OnEngineError();
    } else {
      REQUIRE(event == "death");  // the other engine goes on with it
      ++num_deaths_;
      choice.OnEngineChange(&metrics_.engine(1), &steps_[1]);
    }
  }

  double Value(const std::string& name, std::map<std::string, std::string> labels = {}) const {
    double sum = 0;
    for (const char* engine : {"0", "1"}) {
      labels["engine"] = engine;
      sum += page_.Value(name, labels);
    }
    return sum;
  }

  Metrics metrics_{{.model_name = "m", .num_engines = 2, .max_model_len = 4096}};
  StepTokens steps_[2] = {StepTokens(&metrics_.engine(0)), StepTokens(&metrics_.engine(1))};
  FanOutStats fan_out_;
  std::vector<std::unique_ptr<RequestStats>> choices_;
  ExpositionParser page_;
  int num_deaths_ = 0;
};

struct Intervals {
  double queue, prefill, decode, inference, ttft, e2e, gaps;
  int num_gaps;
};

void Check(const Timeline& t, const Intervals& want) {
  CHECK(t.Sum("request_queue_time_seconds") == Approx(want.queue));
  CHECK(t.Sum("request_prefill_time_seconds") == Approx(want.prefill));
  CHECK(t.Sum("request_decode_time_seconds") == Approx(want.decode));
  CHECK(t.Sum("request_inference_time_seconds") == Approx(want.inference));
  CHECK(t.Sum("time_to_first_token_seconds") == Approx(want.ttft));
  CHECK(t.Sum("e2e_request_latency_seconds") == Approx(want.e2e));
  CHECK(t.Sum("inter_token_latency_seconds") == Approx(want.gaps));
  CHECK(t.Count("inter_token_latency_seconds") == want.num_gaps);
}

TEST_CASE("timeline: preempted while prefilling") {
  Timeline t;
  t.Run(R"(1 0 queued
           2 0 scheduled
           3 0 preempted
           6 0 scheduled
           8 0 tokens 1 10 0
           9 0 tokens 1
           9 0 length)");
  Check(t, {.queue = 1,
            .prefill = 6,
            .decode = 1,
            .inference = 7,
            .ttft = 8.5,
            .e2e = 9.5,
            .gaps = 1,
            .num_gaps = 1});
  CHECK(t.Total("num_preemptions") == 1);
  CHECK(t.Sum("request_num_preemptions") == 1);
  CHECK(t.Total("prompt_tokens") == 10);
}

TEST_CASE("timeline: preempted while decoding") {
  Timeline t;
  t.Run(R"(0 0 queued
           1 0 scheduled
           2 0 tokens 1 10 0
           3 0 preempted
           7 0 scheduled
           9 0 tokens 1
           10 0 tokens 1
           10 0 stop)");
  Check(t, {.queue = 1,
            .prefill = 1,
            .decode = 8,
            .inference = 9,
            .ttft = 2.5,
            .e2e = 10.5,
            .gaps = 8,
            .num_gaps = 2});
  CHECK(t.Sum("request_time_per_output_token_seconds") == Approx(4));
  CHECK(t.Total("prompt_tokens") == 10);
}

TEST_CASE("timeline: a client that leaves while decoding") {
  Timeline t;
  t.Run(R"(0 0 queued
           1 0 scheduled
           2 0 tokens 1 10 0
           3 0 tokens 1
           4 0 abort)");
  Check(t, {.queue = 0,
            .prefill = 0,
            .decode = 0,
            .inference = 0,
            .ttft = 2.5,
            .e2e = 0,
            .gaps = 1,
            .num_gaps = 1});
  CHECK(t.Total("request_success", {{"finished_reason", "abort"}}) == 1);
  CHECK(t.Count("e2e_request_latency_seconds") == 0);
  CHECK(t.Total("generation_tokens") == 2);
}

TEST_CASE("timeline: two choices, of which one ends early") {
  Timeline t(2);
  t.Run(R"(0 0 queued
           0 1 queued
           1 0 scheduled
           1 1 scheduled
           3 0 tokens 1 10 0
           3 1 tokens 1 2 8
           4 0 tokens 1
           4 1 tokens 1
           4 1 stop
           6 0 tokens 1
           6 0 length)");
  Check(t, {.queue = 2,
            .prefill = 4,
            .decode = 4,
            .inference = 8,
            .ttft = 7,
            .e2e = 11,
            .gaps = 4,
            .num_gaps = 3});
  CHECK(t.Sum("request_params_n") == 2);
  CHECK(t.Count("request_params_n") == 1);
  CHECK(t.Sum("request_max_num_generation_tokens") == 3);
  CHECK(t.Total("prompt_tokens") == 20);
  CHECK(t.Total("prompt_tokens_cached") == 8);
  CHECK(t.Sum("request_prefill_kv_computed_tokens") == 12);
  // 10 + 1 + 2 + 1, then 2, then 1.
  CHECK(t.Sum("iteration_tokens_total") == 17);
  CHECK(t.Count("iteration_tokens_total") == 3);
}

TEST_CASE("timeline: a stop string ends the choice before the engine knows") {
  Timeline t;
  t.Run(R"(0 0 queued
           1 0 scheduled
           2 0 tokens 1 10 0
           3 0 tokens 1
           3 0 stop
           4 0 abort)");  // what becomes of the request in the engine
  Check(t, {.queue = 1,
            .prefill = 1,
            .decode = 1,
            .inference = 2,
            .ttft = 2.5,
            .e2e = 3.5,
            .gaps = 1,
            .num_gaps = 1});
  CHECK(t.Total("request_success", {{"finished_reason", "stop"}}) == 1);
  CHECK(t.Total("request_success", {{"finished_reason", "abort"}}) == 0);
}

TEST_CASE("timeline: a whole prompt from the cache, and one computed in chunks") {
  Timeline hit;
  hit.Run(R"(0 0 queued
             1 0 scheduled
             1.5 0 tokens 1 1 9
             1.5 0 length)");
  Check(hit, {.queue = 1,
              .prefill = 0.5,
              .decode = 0,
              .inference = 0.5,
              .ttft = 2,
              .e2e = 2,
              .gaps = 0,
              .num_gaps = 0});
  CHECK(hit.Sum("request_prefill_kv_computed_tokens") == 1);
  CHECK(hit.Total("prompt_tokens_by_source", {{"source", "local_cache_hit"}}) == 9);
  CHECK(hit.Sum("iteration_tokens_total") == 2);
  CHECK(hit.Count("request_time_per_output_token_seconds") == 1);

  // Three steps compute the prompt; the engine sends nothing for the first two.
  Timeline chunks;
  chunks.Run(R"(0 0 queued
                1 0 scheduled
                4 0 tokens 1 10 0
                4 0 length)");
  Check(chunks, {.queue = 1,
                 .prefill = 3,
                 .decode = 0,
                 .inference = 3,
                 .ttft = 4.5,
                 .e2e = 4.5,
                 .gaps = 0,
                 .num_gaps = 0});
  CHECK(chunks.Sum("iteration_tokens_total") == 11);
  CHECK(chunks.Count("iteration_tokens_total") == 1);
}

TEST_CASE("timeline: drafts bring several tokens in one message") {
  Timeline t;
  t.Run(R"(0 0 queued
           1 0 scheduled
           2 0 tokens 1 10 0
           3 0 tokens 4
           5 0 tokens 1
           5 0 length)");
  Check(t, {.queue = 1,
            .prefill = 1,
            .decode = 3,
            .inference = 4,
            .ttft = 2.5,
            .e2e = 5.5,
            .gaps = 3,
            .num_gaps = 2});
  CHECK(t.Sum("request_time_per_output_token_seconds") == Approx(0.6));
  CHECK(t.Total("generation_tokens") == 6);
}

TEST_CASE("timeline: an engine dies while decoding, another goes on") {
  Timeline t;
  t.Run(R"(0 0 queued
           1 0 scheduled
           2 0 tokens 1 10 0
           3 0 death
           7 0 queued
           8 0 scheduled
           9 0 tokens 1
           10 0 tokens 1
           10 0 length)");
  // The pause from 2 to 9 is a gap between tokens.
  Check(t, {.queue = 1,
            .prefill = 1,
            .decode = 8,
            .inference = 9,
            .ttft = 2.5,
            .e2e = 10.5,
            .gaps = 8,
            .num_gaps = 2});
  CHECK(t.Total("prompt_tokens") == 10);
  CHECK(t.Total("generation_tokens") == 3);
}

TEST_CASE("timeline: an engine dies before the first token") {
  Timeline t;
  t.Run(R"(0 0 queued
           1 0 scheduled
           2 0 death
           5 0 queued
           6 0 scheduled
           8 0 tokens 1 10 0
           8 0 length)");
  // Queue and prefill are those of the engine that made the token: no interval spans two clocks.
  Check(t, {.queue = 1,
            .prefill = 2,
            .decode = 0,
            .inference = 2,
            .ttft = 8.5,
            .e2e = 8.5,
            .gaps = 0,
            .num_gaps = 0});
  CHECK(t.Total("prompt_tokens") == 10);
  CHECK(t.Total("request_success", {{"finished_reason", "length"}}) == 1);
}

}  // namespace
}  // namespace tandem
