// With a scheduler and a cache of real bytes: what a block holds is a function of its hash, written
// when a step computes it and compared when a request is admitted with it.

#include "engine_core/kv_transfer/offloading_connector.h"

#include <algorithm>

#include "engine_core/kv_transfer/transferring_executor.h"
#include "engine_core/scheduler/scheduler.h"
#include "kernels/host_memory.h"
#include "tests/support/small_scheduler.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int kLayers = 3;

// Blocks of 4 tokens, in float32.
int64_t KeyBytesOfBlock(int num_kv_heads, int head_dim) {
  return int64_t{4 * sizeof(float)} * num_kv_heads * head_dim;
}

std::unique_ptr<KvCache> MakeCache(int32_t num_blocks) {
  const int64_t units = int64_t{2 * kLayers * 8} * num_blocks;  // 32 bytes of K in a layer's block
  auto memory = AllocateHost(DType::kI32, {&units, 1});
  REQUIRE(memory.ok());
  const KvCacheSpec spec = {.num_layers = kLayers,
                            .num_kv_heads = 1,
                            .head_dim = 2,
                            .block_size = 4,
                            .num_blocks = num_blocks};
  return std::make_unique<KvCache>(spec, *std::move(memory), KeyBytesOfBlock);
}

// Its only work is the content of blocks.
class ContentExecutor final : public Executor {
 public:
  explicit ContentExecutor(KvCache* cache) : cache_(cache) { limits_.block_size = 4; }
  const ExecutorLimits& limits() const override { return limits_; }
  Status Submit(const SchedulerOutput& step) override {
    num_sampled_ = step.requests.size();
    return OkStatus();
  }
  Status Collect(ModelOutput* result) override {
    result->sampled_token_ids.assign(num_sampled_, 9);
    return OkStatus();
  }

  void Fill(BlockId block, const BlockHash& hash) { Visit(block, hash, /*writes=*/true); }
  bool Holds(BlockId block, const BlockHash& hash) { return Visit(block, hash, /*writes=*/false); }

 private:
  bool Visit(BlockId block, const BlockHash& hash, bool writes) {
    bool equal = true;
    for (int layer = 0; layer < kLayers; ++layer) {
      const LayerKv kv = cache_->layer(layer);
      for (void* part : {kv.k, kv.v}) {
        auto* bytes = static_cast<uint8_t*>(part) + 32 * Index(block);
        for (size_t i = 0; i < 32; ++i) {
          const auto value = static_cast<uint8_t>(hash.bytes[i] + layer + (part == kv.v ? 100 : 0));
          if (writes) bytes[i] = value;
          equal = equal && bytes[i] == value;
        }
      }
    }
    return equal;
  }

  KvCache* cache_;
  ExecutorLimits limits_;
  size_t num_sampled_ = 0;
};

class Bench {
 public:
  explicit Bench(int64_t host_bytes, int32_t num_blocks = 12, bool prompt_only = true)
      : cache_(MakeCache(num_blocks)),
        content_(cache_.get()),
        connector_(Make(host_bytes, prompt_only)),
        executor_(&content_, connector_.get()),
        kv_(SmallCache(num_blocks)),
        scheduler_(SmallConfig(), &kv_, connector_.get()) {}

  // Runs one request to its end; returns the tokens that came from host memory.
  int64_t Ask(int32_t num_prompt_tokens, TokenId first_token, int32_t max_tokens = 1) {
    const RequestId id = std::to_string(++num_asked_);
    return Run(CountingRequest(id, num_prompt_tokens, max_tokens, first_token));
  }
  int64_t Run(wire::EngineCoreRequest request) {
    REQUIRE(scheduler_.Add(std::move(request), ++now_).ok());
    int64_t num_external = -1;
    for (int i = 0; i < 20000 && scheduler_.pending_work() != Work::kNone; ++i) {
      const SchedulerOutput& step = scheduler_.Schedule(++now_);
      CheckContent();
      ModelOutput result;
      REQUIRE(executor_.Submit(step).ok());
      REQUIRE(executor_.Collect(&result).ok());
      scheduler_.Update(step, &result, &outputs_);
      for (const auto& record : TakeRecords(&outputs_, now_)) {
        if (record.prefill_stats) num_external = record.prefill_stats->num_external_cached_tokens;
      }
    }
    CHECK(scheduler_.pending_work() == Work::kNone);
    return num_external;
  }

  std::unique_ptr<KvCache> cache_;
  ContentExecutor content_;
  std::unique_ptr<OffloadingConnector> connector_;
  TransferringExecutor executor_;
  KvCacheManager kv_;
  Scheduler scheduler_;
  ClientOutputs outputs_;
  double now_ = 0;

 private:
  std::unique_ptr<OffloadingConnector> Make(int64_t host_bytes, bool prompt_only) {
    auto made = OffloadingConnector::Create(
        {.host_bytes = host_bytes, .offload_prompt_only = prompt_only}, cache_.get());
    REQUIRE(made.ok());
    return *std::move(made);
  }

  // Blocks that a request has been admitted with hold what they should; those that the step
  // computes are filled.
  void CheckContent() {
    for (const Request* request : scheduler_.running()) {
      const std::span<const BlockId> table = kv_.BlockTable(request->slot);
      for (size_t i = 0; i < std::min(table.size(), request->block_hashes.size()); ++i) {
        const bool is_known = static_cast<int32_t>(4 * (i + 1)) <= request->known.total();
        if (is_known) CHECK(content_.Holds(table[i], request->block_hashes[i]));
        content_.Fill(table[i], request->block_hashes[i]);
      }
    }
  }

  int num_asked_ = 0;
};

constexpr int64_t kBlockBytes = 2 * kLayers * 32;

TEST_CASE("offloading: a prompt that the cache has lost comes back from host memory") {
  Bench bench(100 * kBlockBytes);
  CHECK(bench.Ask(30, 0) == 0);
  CHECK(bench.Ask(30, 100) == 0);  // 11 blocks hold one of them
  CHECK(bench.Ask(30, 0) > 0);
  CHECK(bench.Ask(30, 100) > 0);
}

TEST_CASE("offloading: a prompt of whole blocks is loaded whole") {
  Bench bench(100 * kBlockBytes);
  CHECK(bench.Ask(40, 0) == 0);
  CHECK(bench.Ask(40, 100) == 0);
  CHECK(bench.Ask(40, 0) == 36);  // the cache has kept its first block
}

TEST_CASE("offloading: outputs are stored only when asked for") {
  const bool prompt_only = GENERATE(true, false);
  Bench bench(100 * kBlockBytes, 12, prompt_only);
  CHECK(bench.Ask(8, 0, 9) == 0);  // 8 of its outputs are computed
  CHECK(bench.Ask(40, 100) == 0);  // the cache keeps the first block
  wire::EngineCoreRequest next = CountingRequest("next", 20, 1);
  std::fill(next.prompt_token_ids.begin() + 8, next.prompt_token_ids.begin() + 16, 9);
  CHECK(bench.Run(std::move(next)) == (prompt_only ? 4 : 12));
}

TEST_CASE("offloading: the least recently used prefix is lost first, its end before its begin") {
  Bench bench(15 * kBlockBytes);
  CHECK(bench.Ask(40, 0) == 0);
  CHECK(bench.Ask(40, 100) == 0);  // takes 5 blocks of the first
  SECTION("its begin is still there") { CHECK(bench.Ask(40, 0) == 16); }
  SECTION("a third one takes it") {
    CHECK(bench.Ask(40, 200) == 0);
    CHECK(bench.Ask(40, 0) == 0);
  }
}

TEST_CASE("offloading: a reset forgets host memory as well") {
  Bench bench(100 * kBlockBytes);
  CHECK(bench.Ask(30, 0) == 0);
  CHECK(bench.scheduler_.ResetPrefixCache(false, ++bench.now_, /*reset_connector=*/true));
  CHECK(bench.Ask(30, 0) == 0);
}

TEST_CASE("offloading: blocks with more than keys and values are refused") {
  const int64_t units = 1 << 12;
  KvCacheSpec spec = {
      .num_layers = 1, .num_kv_heads = 1, .head_dim = 2, .block_size = 4, .num_blocks = 4};
  SECTION("one latent vector is key and value") { spec.is_latent = true; }
  SECTION("a layer has a state") {
    spec.layers = {{.has_kv = true, .has_state = true}};
    spec.state_size = 8;
  }
  auto memory = AllocateHost(DType::kI32, {&units, 1});
  REQUIRE(memory.ok());
  const KvCache cache(spec, *std::move(memory), KeyBytesOfBlock);
  const auto made = OffloadingConnector::Create({.host_bytes = 1 << 20}, &cache);
  CHECK(made.status().code() == StatusCode::kUnimplemented);
}

TEST_CASE("offloading: host memory for less than a block is refused") {
  const std::unique_ptr<KvCache> cache = MakeCache(4);
  const auto made = OffloadingConnector::Create({.host_bytes = kBlockBytes - 1}, cache.get());
  CHECK(made.status().code() == StatusCode::kInvalidArgument);
  CHECK(OffloadingConnector::Create({.host_bytes = kBlockBytes}, cache.get()).ok());
}

}  // namespace
}  // namespace tandem
