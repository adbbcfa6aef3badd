#include "engine_core/executor/rank_group.h"

#include <unistd.h>

#include <utility>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("rank group: a rank reads from the memory what the output rank has chosen") {
  const ExecutorLimits limits = {.block_size = 96,
                                 .max_num_seqs = 3,
                                 .max_num_batched_tokens = 40,
                                 .max_model_len = 500,
                                 .groups = LayerGroups::OfStates(2, 5)};
  const auto shape = RankGroupShape::Of({.tensor = 2}, limits, /*hidden_size=*/64,
                                        /*max_adapters=*/0, /*spins=*/0);
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
  const auto of_one = RankGroupShape::Of({.tensor = 2}, one, 64, 0, 0);
  CHECK(shape.max_record_bytes - of_one.max_record_bytes >= 6 * (40 + 3 * 6) * 4);
}

}  // namespace
}  // namespace tandem
