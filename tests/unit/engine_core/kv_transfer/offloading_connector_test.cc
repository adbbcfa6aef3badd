#include "engine_core/kv_transfer/offloading_connector.h"

#include <set>

#include "proto_msgpack/kv_connector_stats.h"
#include "proto_msgpack/offload_series.h"
#include "tests/support/connector_bench.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int64_t kBlockBytes = kSmallKvBlockBytes;

ConnectorBench MakeBench(int64_t host_bytes, bool prompt_only = true) {
  return ConnectorBench([=](const KvCache* cache) {
    auto made = OffloadingConnector::Create(
        {.host_bytes = host_bytes, .offload_prompt_only = prompt_only}, {{.cache = cache}});
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
  CHECK(bench.TakeSources().empty());
  CHECK(bench.Ask(40, 0) == 36);  // the cache has kept its first block
  CHECK(bench.TakeSources() == wire::CountsByName{{"host", 36}});
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

// What a reader of the events knows to be in a place, in order of the events.
class Reader {
 public:
  explicit Reader(ConnectorBench* bench) : bench_(bench) {}
  // "+n": n blocks were stored, "-": one was removed.
  std::string Read(KvMedium medium = KvMedium::kHostMemory) {
    std::vector<KvCacheEvent> events;
    bench_->connector().TakeEvents(&events);
    std::string text;
    for (const KvCacheEvent& event : events) {
      if (const auto* stored = std::get_if<BlockStored>(&event)) {
        if (stored->medium != medium) continue;
        CHECK(stored->token_ids.empty());
        text += "+" + std::to_string(stored->block_hashes.size());
        for (const BlockHash& hash : stored->block_hashes)
          CHECK(there_.insert(hash.ToHex()).second);
      } else {
        const auto& removed = std::get<BlockRemoved>(event);
        if (removed.medium != medium) continue;
        text += "-";
        CHECK(there_.erase(removed.block_hash.ToHex()) == 1);
      }
    }
    return text;
  }
  size_t num_there() const { return there_.size(); }

 private:
  ConnectorBench* bench_;
  std::set<std::string> there_;
};

TEST_CASE("offloading: events name what comes into host memory and what leaves it") {
  ConnectorBench bench([](const KvCache* cache) {
    return OffloadingConnector::Create({.host_bytes = 8 * kBlockBytes}, {{.cache = cache}}, nullptr,
                                       /*reports_events=*/true)
        .value();
  });
  Reader reader(&bench);
  CHECK(bench.Ask(20, 0) == 0);
  CHECK(reader.Read() == "+5");
  CHECK(bench.Ask(20, 0) == 4);  // all of it but for the last block is in the cache
  CHECK(reader.Read().empty());
  CHECK(bench.Ask(20, 100) == 0);
  CHECK(reader.Read() == "--+5");
  CHECK(reader.num_there() == 8);
  REQUIRE(bench.Reset());
  CHECK(reader.Read() == "--------");
  CHECK(bench.Ask(20, 100) == 0);
  CHECK(reader.Read() == "+5");
}

TEST_CASE("offloading: events of host memory describe its blocks where that is asked for") {
  ConnectorBench bench([](const KvCache* cache) {
    return OffloadingConnector::Create(
               {.host_bytes = 100 * kBlockBytes, .self_describing_kv_events = true},
               {{.cache = cache}}, nullptr,
               /*reports_events=*/true)
        .value();
  });
  const auto stored = [&] {
    std::vector<KvCacheEvent> events;
    bench.connector().TakeEvents(&events);
    REQUIRE(events.size() == 1);
    return std::get<BlockStored>(events.front());
  };
  CHECK(bench.Ask(9, 0) == 0);
  const BlockStored first = stored();
  CHECK(first.medium == KvMedium::kHostMemory);
  CHECK_FALSE(first.parent);
  CHECK(first.token_ids == std::vector<TokenId>{0, 1, 2, 3, 4, 5, 6, 7});
  (void)bench.Ask(13, 0);  // the same and a block more
  const BlockStored next = stored();
  CHECK(next.parent == first.block_hashes.back());
  CHECK(next.first_block == 2);
  CHECK(next.token_ids == std::vector<TokenId>{8, 9, 10, 11});
  CHECK(next.block_hashes.size() == 1);
}

TEST_CASE("offloading: without readers there are no events") {
  ConnectorBench bench = MakeBench(8 * kBlockBytes);
  CHECK(bench.Ask(20, 0) == 0);
  std::vector<KvCacheEvent> events;
  bench.connector().TakeEvents(&events);
  CHECK(events.empty());
}

// Of a series without labels that is no gauge, its sum over all reports of a request.
double Sum(const wire::KvConnectorStats& stats, std::string_view name) {
  double sum = 0;
  for (const wire::ConnectorSeries& one : stats.series) {
    for (const double value : one.values) sum += one.name == name ? value : 0;
  }
  return sum;
}

wire::KvConnectorStats TakeStats(ConnectorBench* bench) {
  const wire::RawValue packed = bench->scheduler().TakeStats().kv_connector_stats;
  if (packed.is_nil()) return {};
  auto stats = wire::UnpackKvConnectorStats(packed);
  REQUIRE(stats.ok());
  return *std::move(stats);
}

TEST_CASE("offloading: copies are counted by their bytes, and told once") {
  namespace offload = wire::offload;
  ConnectorBench bench = MakeBench(8 * kBlockBytes);
  CHECK(bench.Ask(30, 0) == 0);  // 7 blocks
  wire::KvConnectorStats stats = TakeStats(&bench);
  CHECK(stats.info.front() == std::pair<std::string, std::string>("cpu_num_chunks", "8"));
  CHECK(Sum(stats, offload::kStoreBytes) == 7 * kBlockBytes);
  CHECK(Sum(stats, offload::kStoreSize) == 7 * kBlockBytes);
  CHECK(Sum(stats, offload::kStoreTime) > 0);
  CHECK(Sum(stats, offload::kCpuAllocationSize) == 7);
  CHECK(Sum(stats, offload::kLoadBytes) == 0);
  CHECK(Sum(stats, offload::kCpuUsage) == 0);
  CHECK(bench.scheduler().TakeStats().kv_connector_stats.is_nil());

  CHECK(bench.Ask(40, 100) == 0);  // 10 blocks are more than there is room for
  stats = TakeStats(&bench);
  CHECK(Sum(stats, offload::kCpuAllocationSize) == 10);
  CHECK(Sum(stats, offload::kStoreBytes) == 8 * kBlockBytes);
  CHECK(Sum(stats, offload::kAllocationFailure) == 1);
}

TEST_CASE("offloading: what is loaded is counted, and how long it was looked for") {
  namespace offload = wire::offload;
  ConnectorBench bench = MakeBench(100 * kBlockBytes);
  CHECK(bench.Ask(30, 0) == 0);
  CHECK(bench.Ask(30, 100) == 0);
  (void)TakeStats(&bench);
  const int64_t num_loaded = bench.Ask(30, 0);
  CHECK(num_loaded > 0);
  const wire::KvConnectorStats stats = TakeStats(&bench);
  CHECK(Sum(stats, offload::kLoadBytes) == static_cast<double>(num_loaded / 4 * kBlockBytes));
  CHECK(Sum(stats, offload::kLoadTime) > 0);
  CHECK(Sum(stats, offload::kStoreBytes) == 0);
  CHECK(Sum(stats, offload::kLookupSyncDelay) > 0);
}

TEST_CASE("offloading: a reset forgets host memory as well") {
  ConnectorBench bench = MakeBench(100 * kBlockBytes);
  CHECK(bench.Ask(30, 0) == 0);
  CHECK(bench.Reset());
  CHECK(bench.Ask(30, 0) == 0);
}

TEST_CASE("offloading: a block has latents, and no keys of layers that read another one's") {
  KvCacheSpec spec = {
      .num_layers = 3, .num_kv_heads = 1, .head_dim = 2, .block_size = 4, .num_blocks = 4};
  int64_t num_parts = 3;
  SECTION("one latent vector is key and value") { spec.is_latent = true; }
  SECTION("a layer reads the keys of another one") {
    spec.layers = {{}, {.has_kv = false, .kv_of = 0}, {}};
    num_parts = 4;
  }
  const int64_t units = num_parts * 32;
  auto memory = AllocateHost(DType::kI32, {&units, 1});
  const KvCache cache(spec, *std::move(memory), KeyBytesOfBlock);
  const BlockParts parts = BlockParts::Of({{.cache = &cache}}).value();
  CHECK(static_cast<int64_t>(parts.num_parts()) == num_parts);
  CHECK(parts.block_bytes() == 32 * num_parts);
  for (int64_t i = 0; i < cache.num_bytes(); ++i) MemoryOf(cache)[i] = std::byte(i);
  std::vector<std::byte> bytes(static_cast<size_t>(parts.block_bytes()));
  parts.Read(BlockId{2}, bytes);
  for (int64_t part = 0; part < num_parts; ++part) {
    CHECK(bytes[static_cast<size_t>(32 * part)] == std::byte(128 * part + 64));
  }
  CHECK(OffloadingConnector::Create({.host_bytes = 1 << 20}, {{.cache = &cache}}).ok());
}

TEST_CASE("offloading: blocks with states are refused") {
  const int64_t units = 1 << 12;
  const KvCacheSpec spec = {.num_layers = 1,
                            .num_kv_heads = 1,
                            .head_dim = 2,
                            .block_size = 4,
                            .num_blocks = 4,
                            .layers = {{.has_kv = true, .has_state = true}},
                            .state_size = 8};
  auto memory = AllocateHost(DType::kI32, {&units, 1});
  REQUIRE(memory.ok());
  const KvCache cache(spec, *std::move(memory), KeyBytesOfBlock);
  const auto made = OffloadingConnector::Create({.host_bytes = 1 << 20}, {{.cache = &cache}});
  CHECK(made.status().code() == StatusCode::kUnimplemented);
}

TEST_CASE("offloading: a block has the bytes of all ranks") {
  const auto first = MakeSmallKvCache(3), second = MakeSmallKvCache(3);
  const KvCaches caches = {{.cache = first.get()}, {.cache = second.get()}};
  CHECK(BlockCopier::BytesPerBlock(caches) == 2 * kBlockBytes);
  const BlockParts parts = BlockParts::Of(caches).value();
  const auto num_bytes = static_cast<size_t>(first->num_bytes());
  for (size_t i = 0; i < num_bytes; ++i) {
    MemoryOf(*first)[i] = std::byte(i);
    MemoryOf(*second)[i] = std::byte(7 * i + 1);
  }
  std::vector<std::byte> bytes(2 * kBlockBytes), of_one(kBlockBytes);
  parts.Read(BlockId{1}, bytes);
  const auto half = bytes.begin() + kBlockBytes;
  BlockParts::Of({{.cache = second.get()}}).value().Read(BlockId{1}, of_one);
  CHECK(std::equal(half, bytes.end(), of_one.begin()));
  parts.Write(bytes, BlockId{2});
  CHECK(parts.Checksum(BlockId{2}) == parts.Checksum(BlockId{1}));
  for (const KvCachePart& part : caches) {
    const BlockParts one = BlockParts::Of({part}).value();
    CHECK(one.Checksum(BlockId{2}) == one.Checksum(BlockId{1}));
  }
}

TEST_CASE("offloading: host memory for less than a block is refused") {
  const std::unique_ptr<KvCache> cache = MakeSmallKvCache(4);
  const auto made =
      OffloadingConnector::Create({.host_bytes = kBlockBytes - 1}, {{.cache = cache.get()}});
  CHECK(made.status().code() == StatusCode::kInvalidArgument);
  CHECK(OffloadingConnector::Create({.host_bytes = kBlockBytes}, {{.cache = cache.get()}}).ok());
}

}  // namespace
}  // namespace tandem
