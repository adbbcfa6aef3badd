// Speed of the cpu backend's ops beside the ceilings measured in the same run.
//
// The counter `ceiling` is the time that the machine's limit allows over the time taken; the limit
// is the larger of bytes over DRAM bandwidth and operations over the peak multiplication rate.
// Weights rotate through more than the last-level cache. Run the release preset on a quiet machine:
//   build/release/bench/bench_kernels --benchmark_min_time=0.3

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/backend.h"
#include "kernels/block_format.h"
#include "kernels/compute_pool.h"
#include "tests/bench/machine_ceilings.h"

namespace tandem {
namespace {

MachineCeilings g_ceilings;

// TANDEM_BENCH_THREADS, else every usable CPU.
int NumThreads() {
  const char* threads = std::getenv("TANDEM_BENCH_THREADS");
  return threads == nullptr ? NumUsableCpus() : std::max(1, std::atoi(threads));
}

Backend& BackendFor(DType dtype) {
  const auto make = [](DType type) {
    return MakeCpuBackend({.dtype = type, .num_threads = NumThreads(), .isa = BenchIsa()}).value();
  };
  static auto bf16 = make(DType::kBf16);
  static auto f32 = make(DType::kF32);
  return dtype == DType::kBf16 ? *bf16 : *f32;
}

OwnedTensor Random(Backend& backend, DType dtype, int64_t rows, int64_t columns) {
  static std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(rows * columns);
  for (float& value : values) value = normal(engine);
  return backend.device()
      .Upload(Tensor(values.data(), DType::kF32, {rows, columns}), dtype)
      .value();
}

double PeakOf(DType dtype, WeightFormat format) {
  if (format != WeightFormat::kCompute && g_ceilings.int8_ops_per_second > 0) {
    return g_ceilings.int8_ops_per_second;
  }
  return dtype == DType::kBf16 && g_ceilings.bf16_flops_per_second > 0
             ? g_ceilings.bf16_flops_per_second
             : g_ceilings.float_flops_per_second;
}

void Report(benchmark::State& state, double peak, double bytes, double flops) {
  const double at_best = std::max(bytes / g_ceilings.read_bytes_per_second, flops / peak);
  using benchmark::Counter;
  constexpr auto kRate = Counter::kIsIterationInvariantRate;
  state.counters["GB/s"] = Counter(bytes / 1e9, kRate);
  state.counters["GFLOP/s"] = Counter(flops / 1e9, kRate);
  state.counters["ceiling"] = Counter(at_best, kRate);
}

void BM_Linear(benchmark::State& state, DType dtype, WeightFormat format) {
  const int64_t m = state.range(0);
  const int64_t n = state.range(1);
  const int64_t k = state.range(2);
  Backend& backend = BackendFor(dtype);
  const OwnedTensor weight = Random(backend, DType::kBf16, n, k);
  const MatrixSource blocks[] = {weight.view()};
  std::vector<std::unique_ptr<PackedMatrix>> matrices;
  int64_t bytes = 0;
  while (bytes < int64_t{96} << 20) {
    matrices.push_back(backend.Pack(blocks, format).value());
    bytes += matrices.back()->num_bytes();
  }
  const OwnedTensor x = Random(backend, backend.activation_dtype(), m, k);
  const OwnedTensor out = backend.device().Allocate(backend.activation_dtype(), {m, n}).value();
  size_t next = 0;
  for (auto _ : state) {
    backend.ops().Linear(out, x, *matrices[next]);
    next = (next + 1) % matrices.size();
  }
  Report(state, PeakOf(dtype, format), static_cast<double>(matrices[0]->num_bytes()),
         2.0 * static_cast<double>(m * n * k));
}

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// A matrix in the blocks of a GGUF file beside the same numbers in bf16, in turns; `to_bf16` is how
// many times faster the blocks are, in CPU time, which a busy host disturbs least with one thread.
void BM_BlockLinear(benchmark::State& state, const char* name) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  Backend& backend = BackendFor(DType::kBf16);
  const BlockFormat& format = *FindBlockFormat(name);
  // Two such bytes are a small number in f16.
  std::mt19937 engine(1);
  std::vector<uint8_t> bytes(static_cast<size_t>(n * k / format.size * format.num_bytes));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(0x10 | (engine() & 0x2f));
  const MatrixSource source(
      Tensor(bytes.data(), DType::kI8, {n, k / format.size * format.num_bytes}), format);
  std::vector<std::unique_ptr<PackedMatrix>> sides[2];
  for (int64_t i = 0; i < 2; ++i) {
    const WeightFormat kept = i == 0 ? WeightFormat::kStored : WeightFormat::kCompute;
    for (int64_t size = 0; size < int64_t{96} << 20; size += sides[i].back()->num_bytes()) {
      sides[i].push_back(backend.Pack({&source, 1}, kept).value());
    }
  }
  const OwnedTensor x = Random(backend, DType::kBf16, m, k);
  const OwnedTensor out = backend.device().Allocate(DType::kBf16, {m, n}).value();
  size_t next = 0;
  std::array<double, 2> seconds = {};
  for (auto _ : state) {
    for (size_t i = 0; i < 2; ++i) {
      const double begin = CpuSeconds();
      backend.ops().Linear(out, x, *sides[i][next % sides[i].size()]);
      const double time = (CpuSeconds() - begin) / backend.num_threads();
      seconds[i] += time;
      if (i == 0) state.SetIterationTime(time);
    }
    ++next;
  }
  Report(state, PeakOf(DType::kBf16, WeightFormat::kStored),
         static_cast<double>(sides[0][0]->num_bytes()), 2.0 * static_cast<double>(m * n * k));
  state.counters["to_bf16"] = seconds[1] / seconds[0];
}

// requests x queries over `context` keys each; 32 heads over 8, as in Llama 3.
void BM_Attention(benchmark::State& state, DType dtype, KvFormat format = KvFormat::kCompute) {
  constexpr int kHeads = 32, kKvHeads = 8, kBlock = 32;
  const int64_t requests = state.range(0);
  const int64_t queries = state.range(1);
  const auto context = static_cast<int32_t>(state.range(2));
  const auto dim = static_cast<int>(state.range(3));
  Backend& backend = BackendFor(dtype);
  const int64_t tokens = requests * queries;
  const int64_t blocks_each = (context + kBlock - 1) / kBlock;
  auto cache = backend
                   .AllocateKvCache({.num_layers = 8,
                                     .num_kv_heads = kKvHeads,
                                     .head_dim = dim,
                                     .block_size = kBlock,
                                     .num_blocks = requests * blocks_each,
                                     .format = format})
                   .value();
  std::vector<int32_t> table(requests * blocks_each), query_start(requests + 1),
      context_len(requests, context), positions(tokens), slots(tokens);
  std::iota(table.begin(), table.end(), 0);
  for (int64_t r = 0; r < requests; ++r) {
    query_start[r + 1] = static_cast<int32_t>((r + 1) * queries);
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t position = context - queries + i;
      positions[r * queries + i] = static_cast<int32_t>(position);
      slots[r * queries + i] = static_cast<int32_t>(r * blocks_each * kBlock + position);
    }
  }
  auto plan = backend.MakeAttentionPlan({kHeads, kKvHeads, dim}, tokens, requests).value();
  AttentionBatch batch;
  batch.query_start = query_start;
  batch.context_len = context_len;
  batch.positions = Tensor(positions.data(), DType::kI32, {tokens});
  batch.slot_mapping = Tensor(slots.data(), DType::kI32, {tokens});
  batch.block_table = Tensor(table.data(), DType::kI32, {requests, blocks_each});
  plan->Fill(batch);
  const OwnedTensor q = Random(backend, backend.activation_dtype(), tokens, kHeads * dim);
  const OwnedTensor out =
      backend.device().Allocate(backend.activation_dtype(), {tokens, kHeads * dim}).value();
  int layer = 0;
  for (auto _ : state) {
    backend.ops().PagedAttention(out, q, cache->layer(layer), {.scale = 0.1f}, *plan);
    layer = (layer + 1) % 8;
  }
  const double keys =
      static_cast<double>(tokens) * (context - static_cast<double>(queries - 1) / 2);
  Report(state, PeakOf(dtype, WeightFormat::kCompute), static_cast<double>(cache->num_bytes()) / 8,
         keys * 4 * kHeads * dim);
}

void BM_RmsNorm(benchmark::State& state, DType dtype) {
  Backend& backend = BackendFor(dtype);
  const int64_t rows = state.range(0);
  const int64_t hidden = state.range(1);
  const OwnedTensor x = Random(backend, DType::kF32, rows, hidden);
  const OwnedTensor weights = Random(backend, DType::kF32, 1, hidden);
  const Tensor weight(weights.view().data, DType::kF32, {hidden});
  const OwnedTensor out =
      backend.device().Allocate(backend.activation_dtype(), {rows, hidden}).value();
  for (auto _ : state) backend.ops().RmsNorm(out, x, weight, 1e-5f);
  state.SetItemsProcessed(state.iterations() * rows);
}

void BM_SiluAndMul(benchmark::State& state, DType dtype) {
  Backend& backend = BackendFor(dtype);
  const int64_t rows = state.range(0);
  const int64_t size = state.range(1);
  const OwnedTensor x = Random(backend, backend.activation_dtype(), rows, 2 * size);
  const OwnedTensor out =
      backend.device().Allocate(backend.activation_dtype(), {rows, size}).value();
  for (auto _ : state) backend.ops().SiluAndMul(out, x);
  state.SetItemsProcessed(state.iterations() * rows);
}

// The cost of a fork and a join over empty work.
// Rows of as many adapters of rank 16 beside the matrix alone, in turns; `to_base` is the share of
// the base's speed that is left, in CPU time. An adapter's pairs of all matrices are packed one
// after another, as when it is loaded.
void BM_AdaptedLinear(benchmark::State& state, DType dtype) {
  constexpr int64_t kRank = 16;
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  Backend& backend = BackendFor(dtype);
  const OwnedTensor weight = Random(backend, DType::kBf16, n, k);
  const MatrixSource blocks[] = {weight.view()};
  std::vector<std::unique_ptr<PackedMatrix>> matrices;
  for (int64_t bytes = 0; bytes < int64_t{96} << 20; bytes += matrices.back()->num_bytes()) {
    matrices.push_back(backend.Pack(blocks, WeightFormat::kCompute).value());
  }
  const OwnedTensor a = Random(backend, DType::kBf16, kRank, k);
  const OwnedTensor b = Random(backend, DType::kBf16, n, kRank);
  const PairSource source[] = {{.a = a.view(), .b = b.view()}};
  std::vector<std::unique_ptr<PackedPair>> owners;
  std::vector<std::vector<const PackedPair*>> pairs(matrices.size());
  for (int64_t adapter = 0; adapter < m; ++adapter) {
    for (size_t i = 0; i < matrices.size(); ++i) {
      owners.push_back(backend.PackPair(source, matrices[i]->form()).value());
      pairs[i].push_back(owners.back().get());
    }
  }
  std::vector<int32_t> slots(static_cast<size_t>(m));
  std::iota(slots.begin(), slots.end(), 0);
  const OwnedTensor x = Random(backend, backend.activation_dtype(), m, k);
  const OwnedTensor out = backend.device().Allocate(backend.activation_dtype(), {m, n}).value();
  size_t next = 0;
  std::array<double, 2> seconds = {};
  for (auto _ : state) {
    // One that has long left the cache.
    const size_t other = (next + matrices.size() / 2) % matrices.size();
    double begin = CpuSeconds();
    backend.ops().Linear(out, x, *matrices[next]);
    seconds[0] += CpuSeconds() - begin;
    begin = CpuSeconds();
    backend.ops().AdaptedLinear(
        out, x, *matrices[other], {}, LinearEpilogue::kStore,
        {.slots = Tensor(slots.data(), DType::kI32, {m}), .pairs = pairs[other]});
    const double time = CpuSeconds() - begin;
    seconds[1] += time;
    state.SetIterationTime(time / backend.num_threads());
    next = (next + 1) % matrices.size();
  }
  state.counters["to_base"] = seconds[0] / seconds[1];
}

void BM_ForkJoin(benchmark::State& state) {
  Backend& backend = BackendFor(DType::kBf16);
  const int64_t chunks = 2 * backend.num_threads();
  for (auto _ : state) backend.ParallelFor(chunks, 1, [](int64_t, int64_t) {});
}

void LinearShapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "n", "k"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (auto [n, k] : {std::pair{2048, 2048}, std::pair{5632, 2048}, std::pair{2048, 5632}}) {
    for (int m : {1, 4, 8, 16, 32, 64, 512}) bench->Args({m, n, k});
  }
}

void IntegerLinearShapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "n", "k"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (auto [n, k] : {std::pair{5632, 2048}, std::pair{2048, 5632}}) {
    for (int m : {1, 8, 16, 32, 64, 512}) bench->Args({m, n, k});
  }
}

void BlockLinearShapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "n", "k"})->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (int m : {1, 8, 32, 512}) bench->Args({m, 5632, 2048});
}

void AdaptedLinearShapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "n", "k"})->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (auto [n, k] : {std::pair{2048, 2048}, std::pair{5632, 2048}, std::pair{2048, 5632}}) {
    for (int m : {1, 8}) bench->Args({m, n, k});
  }
}

void AttentionShapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"requests", "queries", "context", "dim"})
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  bench->Args({1, 1, 2048, 128})->Args({16, 1, 512, 128})->Args({16, 1, 512, 64});
  bench->Args({1, 512, 512, 128})->Args({1, 512, 2048, 64});
}

BENCHMARK_CAPTURE(BM_Linear, bf16, DType::kBf16, WeightFormat::kCompute)->Apply(LinearShapes);
BENCHMARK_CAPTURE(BM_Linear, f32, DType::kF32, WeightFormat::kCompute)->Apply(LinearShapes);
BENCHMARK_CAPTURE(BM_Linear, int8, DType::kBf16, WeightFormat::kInt8)->Apply(IntegerLinearShapes);
BENCHMARK_CAPTURE(BM_Linear, int4_g32, DType::kBf16, WeightFormat::kInt4Group32)
    ->Apply(IntegerLinearShapes);
BENCHMARK_CAPTURE(BM_Linear, int4_g128, DType::kBf16, WeightFormat::kInt4Group128)
    ->Apply(IntegerLinearShapes);
BENCHMARK_CAPTURE(BM_BlockLinear, q8_0, "Q8_0")->Apply(BlockLinearShapes);
BENCHMARK_CAPTURE(BM_BlockLinear, q4_0, "Q4_0")->Apply(BlockLinearShapes);
BENCHMARK_CAPTURE(BM_BlockLinear, q4_k, "Q4_K")->Apply(BlockLinearShapes);
BENCHMARK_CAPTURE(BM_BlockLinear, q5_k, "Q5_K")->Apply(BlockLinearShapes);
BENCHMARK_CAPTURE(BM_BlockLinear, q6_k, "Q6_K")->Apply(BlockLinearShapes);
BENCHMARK_CAPTURE(BM_BlockLinear, mxfp4, "MXFP4")->Apply(BlockLinearShapes);
BENCHMARK_CAPTURE(BM_AdaptedLinear, bf16, DType::kBf16)->Apply(AdaptedLinearShapes);
BENCHMARK_CAPTURE(BM_Attention, bf16, DType::kBf16)->Apply(AttentionShapes);
BENCHMARK_CAPTURE(BM_Attention, f32, DType::kF32)->Apply(AttentionShapes);
BENCHMARK_CAPTURE(BM_Attention, int8_cache, DType::kBf16, KvFormat::kInt8)->Apply(AttentionShapes);
BENCHMARK_CAPTURE(BM_Attention, int4_cache, DType::kBf16, KvFormat::kInt4)->Apply(AttentionShapes);
BENCHMARK_CAPTURE(BM_RmsNorm, bf16, DType::kBf16)
    ->Args({1, 2048})
    ->Args({512, 2048})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_SiluAndMul, bf16, DType::kBf16)
    ->Args({1, 5632})
    ->Args({512, 5632})
    ->UseRealTime();
BENCHMARK(BM_ForkJoin)->UseRealTime();

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  tandem::g_ceilings = tandem::MeasureCeilings(tandem::NumThreads());
  std::printf("%s; %s\n", tandem::BackendFor(tandem::DType::kBf16).description().c_str(),
              ToString(tandem::g_ceilings).c_str());
  benchmark::RunSpecifiedBenchmarks();
  std::printf("after: %s\n", ToString(tandem::MeasureCeilings(tandem::NumThreads())).c_str());
  return 0;
}
