#include "engine_core/executor/prompt_scores.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "proto_msgpack/codec.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

constexpr int32_t kVocabSize = 100;

template <class T>
wire::RawValue Matrix(const char* dtype, std::vector<int64_t> shape, const std::vector<T>& data) {
  return wire::PackedTensor(
      {.dtype = dtype,
       .shape = std::move(shape),
       .data = {reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T)}});
}

wire::EngineCoreRequest RequestWith(wire::RawValue ids) {
  wire::EngineCoreRequest request;
  request.prompt_token_ids = {5, 6, 7};
  request.sampling_params.prompt_logprob_token_ids = std::move(ids);
  return request;
}

std::string Refusal(wire::EngineCoreRequest request) {
  return CheckPromptScoreIds(kVocabSize, &request).message();
}

TEST_CASE("prompt scores: ids of either width, of all places or from one on") {
  wire::EngineCoreRequest none;
  CHECK(CheckPromptScoreIds(kVocabSize, &none).ok());
  CHECK(none.sampling_params.prompt_logprob_token_ids.is_nil());
  CHECK(Refusal(RequestWith(Matrix<int32_t>("<i4", {2, 2}, {1, 99, -1, 0}))).empty());
  wire::EngineCoreRequest late = RequestWith(Matrix<int64_t>("int64", {1, 1}, {4}));
  late.sampling_params.prompt_logprob_start = 1;
  // Outputs of an earlier run are no part of the prompt.
  late.prompt_token_ids.push_back(8);
  late.own.num_prior_output_tokens = 1;
  REQUIRE(CheckPromptScoreIds(kVocabSize, &late).ok());
  CHECK(PromptScores::For(late.sampling_params)->begin() == 1);
}

TEST_CASE("prompt scores: what does not fit the prompt or the vocabulary is refused") {
  const auto refusal = [](wire::RawValue ids) { return Refusal(RequestWith(std::move(ids))); };
  CHECK_THAT(refusal(Matrix<int32_t>("<i4", {1, 2}, {1, 2})), Contains("[2, ids]"));
  CHECK_THAT(refusal(Matrix<int32_t>("<i4", {2, 0}, {})), Contains("[2, ids]"));
  CHECK_THAT(refusal(Matrix<int32_t>("<i4", {4}, {1, 2, 3, 4})), Contains("[2, ids]"));
  CHECK_THAT(refusal(Matrix<int32_t>("<i4", {2, 1}, {1})), Contains("bytes"));
  CHECK_THAT(refusal(Matrix<float>("<f4", {2, 1}, {1, 2})), Contains("<f4"));
  CHECK_THAT(refusal(Matrix<int32_t>("<i4", {2, 1}, {1, 100})), Contains("token id 100"));
  CHECK_THAT(refusal(Matrix<int32_t>("<i4", {2, 1}, {1, -2})), Contains("token id -2"));
  CHECK(!refusal({"\x07"}).empty());
  wire::EngineCoreRequest before = RequestWith(Matrix<int32_t>("<i4", {2, 1}, {1, 2}));
  before.sampling_params.prompt_logprob_start = -1;
  CHECK_THAT(Refusal(before), Contains("-1"));
  before.sampling_params.prompt_logprob_start = std::numeric_limits<int32_t>::max();
  CHECK_THAT(Refusal(before), Contains("[0, ids]"));
}

TEST_CASE("prompt scores: ids from a frame are filled and sent as a matrix") {
  wire::EngineCoreRequest request;
  request.prompt_token_ids = {5, 6, 7};
  const std::vector<int64_t> ids = {2, -1};
  request.sampling_params.prompt_logprob_token_ids = wire::EncodeTensor(
      {.dtype = "int64",
       .shape = {1, 2},
       .data = {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t)}},
      &request.aux_frames);
  request.sampling_params.prompt_logprob_start = 1;
  REQUIRE(CheckPromptScoreIds(kVocabSize, &request).ok());
  request.aux_frames.clear();
  StatusOr<PromptScores> scores = PromptScores::For(request.sampling_params);
  REQUIRE(scores.ok());
  scores->Fill(0, std::vector<float>{9, 9, 9}, /*normalized=*/false);
  scores->Fill(1, std::vector<float>{0, 0, 0.5f}, /*normalized=*/false);
  const wire::RawValue packed = scores->Packed();
  const auto tensor = wire::DecodeTensor(packed, {});
  REQUIRE(tensor.ok());
  CHECK(tensor->dtype == "float32");
  CHECK(tensor->shape == std::vector<int64_t>{1, 2});
  const float expected[] = {0.5f, -std::numeric_limits<float>::infinity()};
  CHECK(tensor->data == std::string_view(reinterpret_cast<const char*>(expected), sizeof expected));
}

}  // namespace
}  // namespace tandem
