#include "engine_core/scheduler/stop_check.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using wire::RequestStatus;

wire::SamplingParams Params() {
  wire::SamplingParams params;
  params.eos_token_id = 2;
  params.stop_token_ids = {2, 7};
  params.max_tokens = 3;
  return params;
}

std::optional<Stop> Check(const wire::SamplingParams& params, std::vector<TokenId> outputs,
                          int32_t max_model_len = 100) {
  outputs.insert(outputs.begin(), {2, 7, 2, 7});  // a prompt full of stop ids
  return CheckStop(params, outputs, 4, max_model_len);
}

TEST_CASE("R27: EOS comes first and has no stop reason, then stop ids, then lengths") {
  auto stop = Check(Params(), {5, 6, 2});
  REQUIRE(stop.has_value());
  CHECK(stop->status == RequestStatus::kFinishedStopped);
  CHECK(std::holds_alternative<std::monostate>(stop->reason));
  stop = Check(Params(), {5, 6, 7});
  REQUIRE(stop.has_value());
  CHECK(stop->status == RequestStatus::kFinishedStopped);
  CHECK(std::get<int64_t>(stop->reason) == 7);
  stop = Check(Params(), {5, 6, 8});
  REQUIRE(stop.has_value());
  CHECK(stop->status == RequestStatus::kFinishedLengthCapped);
  CHECK_FALSE(Check(Params(), {5, 6}).has_value());
}

TEST_CASE("R27: max_model_len counts prompt and outputs") {
  CHECK_FALSE(Check(Params(), {5, 6}, 7).has_value());
  const auto stop = Check(Params(), {5, 6}, 6);
  REQUIRE(stop.has_value());
  CHECK(stop->status == RequestStatus::kFinishedLengthCapped);
}

TEST_CASE("R27: ignore_eos disables EOS even when its id is given") {
  wire::SamplingParams params = Params();
  params.stop_token_ids.clear();
  params.ignore_eos = true;
  CHECK_FALSE(Check(params, {2}).has_value());
}

TEST_CASE("R28: EOS and stop ids end a request below min_tokens, repetition does not") {
  wire::SamplingParams params = Params();
  params.max_tokens = 10;
  params.min_tokens = 5;
  params.repetition_detection = {2, 1, 3};
  CHECK(Check(params, {2}).has_value());
  CHECK(Check(params, {7}).has_value());
  CHECK_FALSE(Check(params, {5, 5, 5, 5}).has_value());
  const auto stop = Check(params, {5, 5, 5, 5, 5});
  REQUIRE(stop.has_value());
  CHECK(stop->status == RequestStatus::kFinishedRepetition);
  CHECK(std::get<std::string>(stop->reason) == "repetition_detected");
}

TEST_CASE("R29: the outputs' tail must hold min_count equal blocks of a length in the range") {
  const auto ends = [](std::vector<TokenId> outputs, wire::RepetitionDetection rule) {
    return EndsInRepetition(outputs, rule);
  };
  CHECK(ends({9, 1, 2, 1, 2, 1, 2}, {3, 1, 3}));
  CHECK_FALSE(ends({9, 1, 2, 1, 2, 1, 2}, {3, 1, 4}));
  CHECK_FALSE(ends({9, 1, 2, 1, 2, 1, 2}, {1, 1, 3}));
  CHECK_FALSE(ends({1, 1, 1, 1}, {3, 2, 3}));
  CHECK(ends({1, 1, 1, 1}, {3, 2, 2}));
  CHECK(ends({4, 4}, {1, 0, 2}));
  CHECK_FALSE(ends({1, 2, 1, 2, 3}, {2, 1, 2}));
  CHECK_FALSE(ends({}, {2, 1, 2}));
  CHECK_FALSE(ends({1, 1}, {0, 0, 2}));
}

}  // namespace
}  // namespace tandem
