#include "engine_core/kv_transfer/offloading_connector.h"

#include "tests/support/connector_bench.h"

namespace tandem {
namespace {

constexpr int64_t kBlockBytes = kBenchBlockBytes;

ConnectorBench MakeBench(int64_t host_bytes, bool prompt_only = true) {
  return ConnectorBench([=](const KvCache* cache) {
    auto made = OffloadingConnector::Create(
        {.host_bytes = host_bytes, .offload_prompt_only = prompt_only}, cache);
    REQUIRE(made.ok());
    return *std::move(made);
  });
}

TEST_CASE("offloading: a prompt that the cache has lost comes back from host memory") {
  ConnectorBench bench = MakeBench(100 * kBlockBytes);
  CHECK(bench.Ask(30, 0) == 0);
  CHECK(bench.Ask(30, 100) == 0);  // 11 blocks hold one of them
  CHECK(bench.Ask(30, 0) > 0);
  CHECK(bench.Ask(30, 100) > 0);
}

TEST_CASE("offloading: a prompt of whole blocks is loaded whole") {
  ConnectorBench bench = MakeBench(100 * kBlockBytes);
  CHECK(bench.Ask(40, 0) == 0);
  CHECK(bench.Ask(40, 100) == 0);
  CHECK(bench.Ask(40, 0) == 36);  // the cache has kept its first block
}

TEST_CASE("offloading: outputs are stored only when asked for") {
  const bool prompt_only = GENERATE(true, false);
  ConnectorBench bench = MakeBench(100 * kBlockBytes, prompt_only);
  CHECK(bench.Ask(8, 0, 9) == 0);  // 8 of its outputs are computed
  CHECK(bench.Ask(40, 100) == 0);  // the cache keeps the first block
  wire::EngineCoreRequest next = CountingRequest("next", 20, 1);
  std::fill(next.prompt_token_ids.begin() + 8, next.prompt_token_ids.begin() + 16, 9);
  CHECK(bench.Run(std::move(next)) == (prompt_only ? 4 : 12));
}

TEST_CASE("offloading: the least recently used prefix is lost first, its end before its begin") {
  ConnectorBench bench = MakeBench(15 * kBlockBytes);
  CHECK(bench.Ask(40, 0) == 0);
  CHECK(bench.Ask(40, 100) == 0);  // takes 5 blocks of the first
  SECTION("its begin is still there") { CHECK(bench.Ask(40, 0) == 16); }
  SECTION("a third one takes it") {
    CHECK(bench.Ask(40, 200) == 0);
    CHECK(bench.Ask(40, 0) == 0);
  }
}

TEST_CASE("offloading: a reset forgets host memory as well") {
  ConnectorBench bench = MakeBench(100 * kBlockBytes);
  CHECK(bench.Ask(30, 0) == 0);
  CHECK(bench.Reset());
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
  const std::unique_ptr<KvCache> cache = MakeBenchCache(4);
  const auto made = OffloadingConnector::Create({.host_bytes = kBlockBytes - 1}, cache.get());
  CHECK(made.status().code() == StatusCode::kInvalidArgument);
  CHECK(OffloadingConnector::Create({.host_bytes = kBlockBytes}, cache.get()).ok());
}

}  // namespace
}  // namespace tandem
