#include "engine_core/executor/rank_group.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/kv_caches.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("rank group: a rank reads from the memory what the output rank has chosen") {
  const ExecutorLimits limits = {.block_size = 96,
                                 .max_num_seqs = 3,
                                 .max_num_batched_tokens = 40,
                                 .max_model_len = 500,
                                 .groups = LayerGroups::OfStates(2, 5)};
  ModelConfig model;
  model.hidden_size = 64;
  const auto shape = RankGroupShape::Of({.tensor = 2}, limits, model, /*max_adapters=*/0,
                                        /*spins=*/0);
  const auto first = RankGroup::Create(shape).value();
  const auto other = RankGroup::Open(UniqueFd(dup(first->file())), 1).value();
  CHECK(other->shape().groups == limits.groups);
  CHECK(other->shape().block_size == 96);
  CHECK(other->shape().max_record_bytes == shape.max_record_bytes);
  CHECK(other->counts().num_ranks() == 2);
  CHECK(other->rank() == 1);

  first->PublishKvCache(7, 3);
  const auto record = other->Read();
  REQUIRE(record);
  CHECK((record->step == 0 && record->num_blocks == 7 && record->numbers_per_block == 3));
  other->Release();
  // A step of the most tokens has room with the tables and slots of all groups.
  ExecutorLimits one = limits;
  one.groups = {};
  const auto of_one = RankGroupShape::Of({.tensor = 2}, one, model, 0, 0);
  CHECK(shape.max_record_bytes - of_one.max_record_bytes >= 6 * (40 + 3 * 6) * 4);
}

TEST_CASE("rank group: ranks see each other's KV caches, each in a place of its own") {
  const ExecutorLimits limits = {
      .block_size = 4, .max_num_seqs = 1, .max_num_batched_tokens = 3, .max_model_len = 64};
  ModelConfig model;
  model.hidden_size = 4;
  const auto shape = RankGroupShape::Of({.tensor = 2, .pipeline = 2}, limits, model, 0, 0);
  const auto last = RankGroup::Create(shape).value();
  const auto backend = MakeReferenceBackend();
  const KvCacheSpec spec = {
      .num_layers = 2, .num_kv_heads = 1, .head_dim = 2, .block_size = 4, .num_blocks = 3};
  for (const int rank : {0, 1, 3}) {
    const auto other = RankGroup::Open(UniqueFd(dup(last->file())), rank).value();
    const auto own = backend->AllocateKvCache(spec).value();
    const auto seen = backend->AllocateKvCache(spec).value();
    REQUIRE(other->PlaceKvCache(rank, *own).ok());
    REQUIRE(last->PlaceKvCache(rank, *seen).ok());
    const auto num_bytes = static_cast<size_t>(own->num_bytes());
    CHECK(std::ranges::count(std::span(MemoryOf(*seen), num_bytes), std::byte{0}) ==
          own->num_bytes());
    std::memset(MemoryOf(*own), rank + 1, num_bytes);
    CHECK(std::memcmp(MemoryOf(*seen), MemoryOf(*own), num_bytes) == 0);
  }
}

TEST_CASE("rank group: steps in flight have hidden states and layers' inputs of their own") {
  const ExecutorLimits limits = {
      .block_size = 32, .max_num_seqs = 1, .max_num_batched_tokens = 3, .max_model_len = 64};
  ModelConfig model;
  model.hidden_size = 4;
  model.num_layers = 5;
  model.uneven.input_size = 2;
  const auto shape =
      RankGroupShape::Of({.pipeline = 2}, limits, model, /*max_adapters=*/0, /*spins=*/0);
  const auto last = RankGroup::Create(shape).value();
  const auto first = RankGroup::Open(UniqueFd(dup(last->file())), 0).value();
  std::set<const void*> places;
  for (int64_t step = 1; step <= 2; ++step) {
    const Tensor hidden = first->AwaitHidden(step, 3), inputs = first->LayerInputsOf(step, 3);
    CHECK((hidden.rows() == 3 && hidden.shape[1] == 4));
    CHECK((inputs.rows() == 3 && inputs.shape[1] == 10));
    float number = static_cast<float>(step);
    for (const Tensor& each : {hidden, inputs}) {
      for (int64_t i = 0; i < each.NumElements(); ++i) each.Data<float>()[i] = number++;
      places.insert(each.data);
    }
    first->EndStage(step);
  }
  CHECK(places.size() == 4);
  for (int64_t step = 1; step <= 2; ++step) {
    const auto begin = static_cast<float>(step);
    CHECK(last->AwaitHidden(step, 3).Data<float>()[11] == begin + 11);
    CHECK(last->LayerInputsOf(step, 3).Data<float>()[0] == begin + 12);
    CHECK(last->LayerInputsOf(step, 3).Data<float>()[29] == begin + 41);
  }
}

TEST_CASE("rank group: what a head reads is handed on beside the hidden states") {
  const ExecutorLimits limits = {
      .block_size = 32, .max_num_seqs = 1, .max_num_batched_tokens = 3, .max_model_len = 64};
  ModelConfig model;
  model.hidden_size = 4;
  const std::vector<int> layers = {0, 2};
  const auto with = [&](const RankCounts& counts) {
    return RankGroup::Create(RankGroupShape::Of(counts, limits, model, 0, 0, layers)).value();
  };
  const auto last = with({.pipeline = 2});
  const auto first = RankGroup::Open(UniqueFd(dup(last->file())), 0).value();
  CHECK(std::ranges::equal(first->shape().taken_layers(), layers));
  std::set<const void*> places;
  for (int64_t step = 1; step <= 2; ++step) {
    const Tensor states = first->StatesOf(step, 3, DType::kBf16);
    CHECK((states.dtype == DType::kBf16 && states.rows() == 3 && states.shape[1] == 8));
    places.insert(states.data);
    places.insert(first->AwaitHidden(step, 3).data);
    std::fill_n(static_cast<uint16_t*>(states.data), 24, static_cast<uint16_t>(step));
    first->EndStage(step);
  }
  CHECK(places.size() == 4);
  const auto first_number = [&](int64_t step) {
    return *static_cast<const uint16_t*>(last->StatesOf(step, 3, DType::kBf16).data);
  };
  CHECK(first_number(1) == 1);
  CHECK(first_number(2) == 2);
  CHECK(last->TurnOf(1) != last->TurnOf(2));
  // One stage has all of them.
  CHECK(with({.tensor = 2})->StatesOf(1, 3, DType::kF32).empty());
}

TEST_CASE("rank group: it shows what a rank sleeps for") {
  const ExecutorLimits limits = {
      .block_size = 16, .max_num_seqs = 1, .max_num_batched_tokens = 4, .max_model_len = 32};
  ModelConfig model;
  model.hidden_size = 8;
  const auto shape =
      RankGroupShape::Of({.tensor = 2}, limits, model, /*max_adapters=*/0, /*spins=*/0);
  const auto first = RankGroup::Create(shape).value();
  const auto other = RankGroup::Open(UniqueFd(dup(first->file())), 1).value();
  RankLine& line = first->lines()[1];
  CHECK(line.rank_wait() == RankWait::kNothing);
  std::thread rank([&] {
    CHECK(other->Read().has_value());
    other->Release();
    other->communicator()->Meet();
  });
  while (line.rank_wait() != RankWait::kNextStep) std::this_thread::yield();
  const uint64_t before = line.wait.load();
  first->PublishKvCache(7, 3);
  while (line.rank_wait() != RankWait::kStage) std::this_thread::yield();
  CHECK(line.wait.load() > before);
  CHECK(TextOf(line.rank_wait()) == "waits for the other ranks of its stage");
  first->communicator()->Meet();
  rank.join();
  CHECK(line.rank_wait() == RankWait::kNothing);
}

}  // namespace
}  // namespace tandem
