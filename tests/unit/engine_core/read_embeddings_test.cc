#include "engine_core/read_embeddings.h"

#include <catch2/catch.hpp>

#include "proto_msgpack/codec.h"

namespace tandem {
namespace {

ExecutorLimits Limits(int32_t hidden_size = 2) {
  ExecutorLimits limits;
  limits.hidden_size = hidden_size;
  return limits;
}

wire::EngineCoreRequest With(const wire::TensorView& tensor) {
  wire::EngineCoreRequest request;
  request.prompt_embeds = wire::EncodeTensor(tensor, &request.aux_frames);
  return request;
}

// The parts of runs in [begin, end): position, rows and their bytes.
std::string PartsOf(const PromptEmbeddings& embeddings, int32_t begin, int32_t end) {
  std::string parts;
  embeddings.ForEachRun(begin, end, [&](PromptEmbeddings::Run run, std::string_view rows) {
    parts += std::to_string(run.begin) + "+" + std::to_string(run.num_rows) + ":" +
             std::to_string(rows.size()) + " ";
  });
  return parts;
}

const std::string kBytes(24, '\x01');
const wire::TensorView kThreeRows = {"float32", {3, 2}, kBytes};

TEST_CASE("Embeddings leave the message, and zeros stand for their rows") {
  wire::EngineCoreRequest request = With(kThreeRows);
  const auto embeddings = ReadEmbeddings(Limits(), &request);
  REQUIRE(embeddings.ok());
  CHECK((*embeddings)->type == PromptEmbeddings::Type::kFloat32);
  CHECK((*embeddings)->data == kBytes);
  CHECK(PartsOf(**embeddings, 0, 9) == "0+3:24 ");
  CHECK(PartsOf(**embeddings, 1, 2) == "1+1:8 ");
  CHECK(PartsOf(**embeddings, 3, 4).empty());
  CHECK(request.prompt_token_ids == std::vector<TokenId>{0, 0, 0});
  CHECK(request.prompt_embeds.is_nil());
  CHECK(request.aux_frames.empty());
}

TEST_CASE("Embeddings of a request that goes on keep the outputs after the zeros") {
  wire::EngineCoreRequest request = With(kThreeRows);
  request.prompt_token_ids = {0, 0, 0, 7, 8};
  request.own.num_prior_output_tokens = 2;
  REQUIRE(ReadEmbeddings(Limits(), &request).ok());
  CHECK(request.prompt_token_ids == std::vector<TokenId>{0, 0, 0, 7, 8});
}

TEST_CASE("A prompt of tokens and embeddings keeps the rows that count, by position") {
  std::string rows = "aaaaaaaabbbbbbbbccccccccdddddddd";
  wire::EngineCoreRequest request = With({"float32", {4, 2}, rows});
  request.prompt_token_ids = {5, 6, 7, 8, 9};
  request.prompt_is_token_ids = wire::PackedBools({false, true, false, false});
  request.own.num_prior_output_tokens = 1;
  wire::EngineCoreRequest all_tokens = request;
  const auto embeddings = ReadEmbeddings(Limits(), &request);
  REQUIRE(embeddings.ok());
  CHECK(request.prompt_token_ids == std::vector<TokenId>{0, 6, 0, 0, 9});
  CHECK(request.prompt_is_token_ids.is_nil());
  CHECK((*embeddings)->data == "aaaaaaaaccccccccdddddddd");
  CHECK(PartsOf(**embeddings, 0, 9) == "0+1:8 2+2:16 ");
  CHECK(PartsOf(**embeddings, 1, 3) == "2+1:8 ");
  CHECK(PartsOf(**embeddings, 3, 4) == "3+1:8 ");
  CHECK(PartsOf(**embeddings, 1, 2).empty());

  all_tokens.prompt_is_token_ids = wire::PackedBools({true, true, true, true});
  const auto none = ReadEmbeddings(Limits(), &all_tokens);
  REQUIRE(none.ok());
  CHECK(*none == nullptr);
  CHECK(all_tokens.prompt_token_ids == std::vector<TokenId>{5, 6, 7, 8, 9});
}

TEST_CASE("A request without embeddings has none, and an engine without room refuses them") {
  wire::EngineCoreRequest plain;
  plain.prompt_token_ids = {1};
  const auto none = ReadEmbeddings(Limits(0), &plain);
  REQUIRE(none.ok());
  CHECK(*none == nullptr);
  wire::EngineCoreRequest request = With(kThreeRows);
  CHECK(ReadEmbeddings(Limits(0), &request).status().code() == StatusCode::kUnimplemented);
}

TEST_CASE("Embeddings that do not fit are refused with the reason") {
  const auto refusal = [](wire::EngineCoreRequest request) {
    const auto result = ReadEmbeddings(Limits(), &request);
    REQUIRE(!result.ok());
    return result.status().message();
  };
  const auto of = [&](const wire::TensorView& tensor) { return refusal(With(tensor)); };
  CHECK(of({"int64", {3, 2}, kBytes}) ==
        "prompt_embeds are of type int64, must be float32, float16 or bfloat16");
  CHECK(of({"float32", {2, 3}, kBytes}) ==
        "prompt_embeds have the shape [2, 3], must be [tokens, 2] for this model");
  CHECK(of({"float32", {6}, kBytes}) ==
        "prompt_embeds have the shape [6], must be [tokens, 2] for this model");
  CHECK(of({"float32", {0, 2}, ""}) ==
        "prompt_embeds have the shape [0, 2], must be [tokens, 2] for this model");
  CHECK(of({"float16", {3, 2}, kBytes}) ==
        "prompt_embeds have 24 bytes, which their shape [3, 2] contradicts");
  wire::EngineCoreRequest mixed = With(kThreeRows);
  mixed.prompt_token_ids = {1, 2};
  CHECK(refusal(mixed) == "prompt_embeds have 3 rows, but the prompt has 2 token ids");
  mixed.prompt_token_ids = {1, 2, 3};
  mixed.prompt_is_token_ids = wire::PackedBools({true, false});
  CHECK(refusal(mixed) == "prompt_embeds have 3 rows, but prompt_is_token_ids has 2 entries");
  mixed.prompt_is_token_ids = wire::PackedBools({true, false, true});
  mixed.prompt_token_ids.clear();
  CHECK(refusal(mixed) == "prompt_embeds have 3 rows, but the prompt has 0 token ids");
  mixed.prompt_is_token_ids.packed = "\x92\xc3";
  CHECK(!refusal(mixed).empty());
  mixed.prompt_is_token_ids.packed = "\xdd\xff\xff\xff\xff";
  CHECK(!refusal(mixed).empty());
  wire::EngineCoreRequest damaged = With(kThreeRows);
  damaged.aux_frames.clear();
  CHECK(!refusal(damaged).empty());
  damaged.prompt_embeds.packed = "\xc1";
  CHECK(!refusal(damaged).empty());
}

}  // namespace
}  // namespace tandem
