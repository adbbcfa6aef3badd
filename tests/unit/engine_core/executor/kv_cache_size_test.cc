#include "engine_core/executor/kv_cache_size.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int64_t kMiB = 1 << 20;

ExecutorLimits Limits() {
  ExecutorLimits limits;
  limits.block_size = 32;
  limits.max_num_seqs = 4;
  limits.max_model_len = 1024;
  return limits;
}

const HostMemory kMemory = {
    .total_bytes = 1000 * kMiB, .available_bytes = 600 * kMiB, .resident_bytes = 100 * kMiB};

TEST_CASE("kv cache size: blocks win over bytes, bytes over the share of memory") {
  KvCacheWish wish = {.num_blocks = 7, .bytes = 50 * kMiB, .utilization = 0.5};
  CHECK(*ChooseNumBlocks(wish, kMiB, Limits(), kMemory) == 7);
  wish.num_blocks.reset();
  CHECK(*ChooseNumBlocks(wish, kMiB, Limits(), kMemory) == 50);
  wish.bytes.reset();
  CHECK(*ChooseNumBlocks(wish, kMiB, Limits(), kMemory) == 400);
}

TEST_CASE("kv cache size: by default twice what the limits can use, at most half of what is free") {
  // 4 requests of 1024 tokens are 128 blocks.
  CHECK(*ChooseNumBlocks({}, kMiB, Limits(), kMemory) == 2 * 128 + 1);
  CHECK(*ChooseNumBlocks({}, 2 * kMiB, Limits(), kMemory) == 150 + 1);
}

TEST_CASE("kv cache size: what the limits can use does not overflow an int64") {
  ExecutorLimits limits = Limits();
  limits.max_model_len = 1 << 30;  // 2^25 blocks of 2^40 bytes: 2^65
  const HostMemory large = {.total_bytes = int64_t{1} << 50, .available_bytes = int64_t{1} << 48};
  CHECK(*ChooseNumBlocks({}, int64_t{1} << 40, limits, large) == 128 + 1);
  CHECK_FALSE(ChooseMaxModelLen(false, int64_t{1} << 40, limits, large).ok());
}

TEST_CASE("kv cache size: with a window a request needs room for the window and a step") {
  ExecutorLimits limits = Limits();
  limits.groups = LayerGroups::OfWindow(65);
  limits.max_num_batched_tokens = 64;
  // 64 + 64 tokens are 4 blocks, and the window may begin within one.
  CHECK(*ChooseNumBlocks({}, kMiB, limits, kMemory) == 2 * 4 * 5 + 1);
  CHECK(MaxModelLenOf(5, limits) == 1024);
  CHECK(MaxModelLenOf(4, limits) == 4 * 32);
  limits.max_model_len = 1 << 30;
  CHECK(*ChooseMaxModelLen(false, 100 * kMiB, limits, kMemory) == 1 << 30);
  limits.groups = {};
  CHECK_FALSE(ChooseMaxModelLen(false, 100 * kMiB, limits, kMemory).ok());
}

TEST_CASE("kv cache size: with groups a request needs all blocks of some and a window of others") {
  ExecutorLimits limits = Limits();
  limits.groups = {.num_full = 2, .num_local = 3, .window = 65};
  limits.max_num_batched_tokens = 64;
  CHECK(*ChooseNumBlocks({}, kMiB / 16, limits, kMemory) == 2 * 4 * (2 * 32 + 3 * 5) + 1);
  CHECK(MaxModelLenOf(2 * 32 + 3 * 5, limits) == 1024);
  CHECK(MaxModelLenOf(2 * 31 + 3 * 5, limits) == 31 * 32);
  CHECK(MaxModelLenOf(2 * 32 + 3 * 5 - 1, limits) == 31 * 32);
  CHECK(MaxModelLenOf(5 * 4, limits) == 4 * 32);
  CHECK(MaxModelLenOf(4, limits) == 0);
}

TEST_CASE("kv cache size: slots stay within 32 bits") {
  const auto blocks = ChooseNumBlocks({.num_blocks = 2147483647}, 1, Limits(), kMemory);
  CHECK(*blocks == 2147483647 / 32);
}

TEST_CASE("kv cache size: more than the host's memory is refused") {
  CHECK(ChooseNumBlocks({.num_blocks = 1000}, kMiB, Limits(), kMemory).ok());
  CHECK_FALSE(ChooseNumBlocks({.num_blocks = 1001}, kMiB, Limits(), kMemory).ok());
  const auto bytes = ChooseNumBlocks({.bytes = INT64_MAX}, kMiB, Limits(), kMemory);
  REQUIRE_FALSE(bytes.ok());
  CHECK_THAT(bytes.status().message(), Catch::Matchers::Contains("--kv-cache-memory-bytes"));
}

TEST_CASE("max model len: a length that memory cannot hold is refused, or cut if it is auto") {
  ExecutorLimits limits = Limits();
  CHECK(*ChooseMaxModelLen(false, kMiB, limits, kMemory) == 1024);
  limits.max_model_len = 1 << 30;
  CHECK(*ChooseMaxModelLen(true, kMiB, limits, kMemory) == 1000 * 32);
  const auto refused = ChooseMaxModelLen(false, kMiB, limits, kMemory);
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.status().message(), Catch::Matchers::Contains("--max-model-len"));
}

TEST_CASE("kv cache size: no room is an error that names the flags that help") {
  const auto blocks = ChooseNumBlocks({.bytes = kMiB}, kMiB, Limits(), kMemory);
  REQUIRE_FALSE(blocks.ok());
  CHECK(blocks.status().code() == StatusCode::kResourceExhausted);
  CHECK_THAT(blocks.status().message(), Catch::Matchers::Contains("--kv-cache-memory-bytes"));
  CHECK_FALSE(ChooseNumBlocks({.utilization = 0.05}, kMiB, Limits(), kMemory).ok());
}

TEST_CASE("kv cache size: this host has memory") {
  const HostMemory memory = ReadHostMemory();
  CHECK(memory.total_bytes > 64 * kMiB);
  CHECK(memory.available_bytes > 0);
  CHECK(memory.available_bytes <= memory.total_bytes);
  CHECK(memory.resident_bytes > 0);
}

TEST_CASE("kv cache size: a limit on the address space leaves what is not mapped yet") {
  const auto within = [](std::optional<int64_t> limit, int64_t mapped) {
    return WithinAddressSpace(kMemory, {.limit_bytes = limit, .mapped_bytes = mapped});
  };
  CHECK(within({}, 5000 * kMiB).total_bytes == kMemory.total_bytes);
  CHECK(within(5000 * kMiB, 500 * kMiB).available_bytes == kMemory.available_bytes);
  const HostMemory tight = within(700 * kMiB, 500 * kMiB);
  CHECK(tight.available_bytes == 200 * kMiB);
  CHECK(tight.total_bytes == 300 * kMiB);  // 100 of it are resident
  CHECK(tight.resident_bytes == kMemory.resident_bytes);
  CHECK(within(500 * kMiB, 700 * kMiB).available_bytes == 0);
  CHECK(ReadAddressSpace().mapped_bytes >= ReadHostMemory().resident_bytes);
}

}  // namespace
}  // namespace tandem
