// KV of a prompt of 4,096 tokens of the 1.1b bench model (22 layers, 4 KV heads of 64, bfloat16:
// 128 blocks of 704 KiB) from one cache to another one: as a reader sees it, and a bare copy.

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/check.h"
#include "common/mailbox.h"
#include "engine_core/kv_remote/reader.h"
#include "engine_core/kv_remote/server.h"
#include "engine_core/kv_remote/shared_cache.h"
#include "kernels/host_memory.h"

namespace tandem {
namespace {

constexpr int kNumBlocks = 128;
constexpr int64_t kPartBytes = 32 * 4 * 64 * 2;

std::unique_ptr<KvCache> MakeCache() {
  const KvCacheSpec spec = {.num_layers = 22,
                            .num_kv_heads = 4,
                            .head_dim = 64,
                            .block_size = 32,
                            .num_blocks = kNumBlocks + 1};
  const auto key_bytes = [](int, int) { return kPartBytes; };
  const int64_t units = spec.bytes_per_block(key_bytes) * spec.num_blocks / 4;
  return std::make_unique<KvCache>(spec, AllocateHost(DType::kI32, {&units, 1}).value(), key_bytes);
}

void Fill(const BlockParts& parts, int value) {
  std::memset(parts.memory(), value, static_cast<size_t>(parts.memory_bytes()));
}

void CountBytes(benchmark::State& state, const BlockParts& parts) {
  state.SetBytesProcessed(state.iterations() * parts.block_bytes() * kNumBlocks);
}

void BM_Memcpy(benchmark::State& state) {
  const auto from = MakeCache(), to = MakeCache();
  const BlockParts source = BlockParts::Of({{.cache = from.get()}}).value(),
                   target = BlockParts::Of({{.cache = to.get()}}).value();
  Fill(source, 1);
  Fill(target, 2);
  for (auto _ : state) {
    for (int i = 1; i <= kNumBlocks; ++i) {
      target.CopyFrom(source.memory(), source.num_blocks(), i, BlockId{i});
    }
  }
  CountBytes(state, target);
}

void BM_Checksum(benchmark::State& state) {
  const auto cache = MakeCache();
  const BlockParts parts = BlockParts::Of({{.cache = cache.get()}}).value();
  Fill(parts, 1);
  for (auto _ : state) {
    for (int i = 1; i <= kNumBlocks; ++i) benchmark::DoNotOptimize(parts.Checksum(BlockId{i}));
  }
  CountBytes(state, parts);
}

enum class Way { kUnix, kTcp, kMapped };

void BM_Read(benchmark::State& state, Way way) {
  const auto from = MakeCache(), to = MakeCache();
  const BlockParts source = BlockParts::Of({{.cache = from.get()}}).value(),
                   target = BlockParts::Of({{.cache = to.get()}}).value();
  UniqueFd memory;
  if (way == Way::kMapped) {
    memory = ShareMemory(source.memory(), source.memory_bytes()).value();
  }
  Fill(source, 1);
  Fill(target, 2);
  const KvShape shape = {.model = "m",
                         .block_size = 32,
                         .num_parts = static_cast<uint32_t>(source.num_parts()),
                         .block_bytes = static_cast<uint64_t>(source.block_bytes())};
  const KvAddress address =
      way == Way::kTcp ? KvAddress{.host = "127.0.0.1"}
                       : KvAddress{.path = "/tmp/tandem-bench-kv-" + std::to_string(getpid())};
  const auto server = KvServer::Start({.address = address, .max_leased_blocks = 2 * kNumBlocks},
                                      source, shape, std::move(memory), [](const RequestId&) {})
                          .value();
  Mailbox<KvReadEnd> ends;
  const auto reader =
      KvReader::Start(target, shape, {}, [&](KvReadEnd end) { ends.Push(std::move(end)); }).value();
  uint64_t number = 0;
  std::vector<KvReadEnd> taken;
  for (auto _ : state) {
    KvLease lease = {.ticket = {.lease = ++number}, .id = std::to_string(number)};
    KvReadJob job = {.id = lease.id, .ticket = lease.ticket};
    for (int i = 1; i <= kNumBlocks; ++i) lease.blocks.push_back(BlockId{i});
    lease.hashes.resize(kNumBlocks);
    job.blocks = lease.blocks;
    job.hashes = lease.hashes;
    server->Lease(std::move(lease));
    reader->Read(server->address(), std::move(job));
    ends.Wait();
    ends.Drain(&taken);
    CHECK(taken[0].status.ok()) << taken[0].status.ToString();
  }
  CountBytes(state, target);
}

// The same bytes through a socket and nothing else: one thread writes, one reads.
void BM_Socket(benchmark::State& state, bool is_tcp) {
  const auto from = MakeCache(), to = MakeCache();
  const BlockParts source = BlockParts::Of({{.cache = from.get()}}).value(),
                   target = BlockParts::Of({{.cache = to.get()}}).value();
  Fill(source, 1);
  Fill(target, 2);
  KvAddress address = is_tcp
                          ? KvAddress{.host = "127.0.0.1"}
                          : KvAddress{.path = "/tmp/tandem-bench-kv-" + std::to_string(getpid())};
  const UniqueFd listener = ListenAt(&address).value();
  const UniqueFd writes = ConnectTo(address).value();
  const UniqueFd reads(accept(listener.get(), nullptr, nullptr));
  if (!is_tcp) unlink(address.path.c_str());
  fcntl(writes.get(), F_SETFL, 0);
  const auto move = [](int fd, const BlockParts& parts, auto call) {
    std::vector<iovec> pieces;
    for (int i = 1; i <= kNumBlocks; ++i) {
      pieces.clear();
      parts.AppendTo(&pieces, BlockId{i});
      for (size_t next = 0; next < pieces.size();) {
        const ssize_t size = call(fd, &pieces[next], static_cast<int>(pieces.size() - next));
        CHECK_GT(size, 0);
        DropBytes(static_cast<size_t>(size), &pieces, &next);
      }
    }
  };
  for (auto _ : state) {
    std::thread writer([&] { move(writes.get(), source, writev); });
    move(reads.get(), target, readv);
    writer.join();
  }
  CountBytes(state, target);
}

BENCHMARK(BM_Memcpy)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Checksum)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Read, mapped, Way::kMapped)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Read, unix_socket, Way::kUnix)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Socket, unix_socket, false)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Socket, tcp, true)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Read, tcp, Way::kTcp)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tandem
