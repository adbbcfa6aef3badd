#include "frontend/tracing/trace_context.h"

#include <cstdio>
#include <set>
#include <string>

#include "common/random.h"
#include "frontend/tracing/sampler.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr const char* kGood = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST_CASE("traceparent: the standard's example") {
  const auto context = ParseTraceContext(kGood, "congo=t61rcWkgMzE, rojo=00f067aa0ba902b7");
  REQUIRE(context);
  CHECK(HexText(context->trace_id) == "0af7651916cd43dd8448eb211c80319c");
  CHECK(HexText(context->span_id) == "b7ad6b7169203331");
  CHECK(context->is_sampled);
  CHECK(context->state == "congo=t61rcWkgMzE, rojo=00f067aa0ba902b7");
  const auto unsampled =
      ParseTraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02", "");
  REQUIRE(unsampled);
  CHECK_FALSE(unsampled->is_sampled);
}

TEST_CASE("traceparent: later versions may be longer, version 0 may not") {
  const std::string rest = std::string(kGood).substr(2);
  CHECK(ParseTraceContext("cc" + rest + "-what-comes-then", ""));
  CHECK(ParseTraceContext("01" + rest, ""));
  CHECK_FALSE(ParseTraceContext("cc" + rest + ".what", ""));
  CHECK_FALSE(ParseTraceContext("00" + rest + "-what", ""));
  CHECK_FALSE(ParseTraceContext("ff" + rest, ""));
}

TEST_CASE("traceparent: what is not well-formed counts as absent") {
  const std::string good = kGood;
  for (size_t size = 0; size < good.size(); ++size) {
    CHECK_FALSE(ParseTraceContext(good.substr(0, size), ""));
  }
  for (const char* bad : {"00-00000000000000000000000000000000-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                          "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
                          "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
                          "0-00af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
                          "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\xC3"}) {
    CHECK_FALSE(ParseTraceContext(bad, ""));
  }
}

TEST_CASE("traceparent: one byte changed to any other is refused or read without harm") {
  const std::string good = kGood;
  for (size_t i = 0; i < good.size(); ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string text = good;
      text[i] = static_cast<char>(byte);
      const auto context = ParseTraceContext(text, "");
      if (!context) continue;
      CHECK(context->trace_id.is_set());
      CHECK(context->span_id != 0);
    }
  }
}

TEST_CASE("tracestate: dropped as a whole where it is not well-formed") {
  const auto state = [](const std::string& text) { return ParseTraceContext(kGood, text)->state; };
  CHECK(state(" a=1 ,, b@c/d=x y ") == "a=1 ,, b@c/d=x y");
  for (const std::string bad :
       {"a", "=1", "A=1", "a=1,a=2", "a=", "a=1=2", "a=\t", "a=\xC3\xA4", "-a=1"}) {
    INFO(bad);
    CHECK(state(bad).empty());
  }
  CHECK(state("a=" + std::string(257, 'x')).empty());
  std::string members;
  for (int i = 0; i < 32; ++i) members += "k" + std::to_string(i) + "=v,";
  CHECK(state(members) == members);
  CHECK(state(members + "more=1").empty());
}

TEST_CASE("trace ids: random ones are set and differ") {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    seen.insert(HexText(RandomTraceId()));
    seen.insert(HexText(RandomSpanId()));
  }
  CHECK(seen.size() == 2000);
}

TEST_CASE("sampler: names and shares are checked") {
  for (const char* name : {"always_on", "always_off", "traceidratio", "parentbased_always_on",
                           "parentbased_always_off", "parentbased_traceidratio"}) {
    CHECK(Sampler::Parse(name, "").ok());
  }
  CHECK(
      Sampler::Parse("jaeger_remote", "").status().message() ==
      "sampler is 'jaeger_remote', must be always_on, always_off or traceidratio, or one of these "
      "after parentbased_");
  for (const char* share : {"-0.1", "1.1", "nan", "inf", "half", "0,5"}) {
    CHECK_FALSE(Sampler::Parse("traceidratio", share).ok());
  }
}

TEST_CASE("sampler: a parent decides where the name says so, else the id") {
  const TraceId low = {1, 0}, high = {1, ~uint64_t{0}};
  const TraceContext sampled = {{1, 2}, 3, true, ""}, unsampled = {{1, 2}, 3, false, ""};
  const Sampler follows = *Sampler::Parse("parentbased_always_off", "");
  CHECK(follows.Samples(sampled, low));
  CHECK_FALSE(follows.Samples(unsampled, low));
  CHECK_FALSE(follows.Samples({}, low));
  const Sampler all;
  CHECK(all.Samples({}, high));
  CHECK_FALSE(all.Samples(unsampled, high));
  const Sampler own = *Sampler::Parse("always_on", "");
  CHECK(own.Samples(unsampled, high));
  const Sampler none = *Sampler::Parse("traceidratio", "0");
  CHECK_FALSE(none.Samples({}, low));
  CHECK_FALSE(none.Samples(sampled, low));
}

TEST_CASE("sampler: a share of the ids is taken") {
  const Sampler quarter = *Sampler::Parse("traceidratio", "0.25");
  int num_taken = 0;
  constexpr int kIds = 20000;
  for (int i = 0; i < kIds; ++i) {
    num_taken += quarter.Samples({}, {1, MixBits(static_cast<uint64_t>(i))}) ? 1 : 0;
  }
  CHECK(num_taken > kIds / 4 - 400);
  CHECK(num_taken < kIds / 4 + 400);
  CHECK(Sampler::Parse("traceidratio", "1")->Samples({}, {1, ~uint64_t{0}}));
}

}  // namespace
}  // namespace tandem
