#include "tests/bench/machine_ceilings.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <vector>

#include "common/check.h"
#include "kernels/compute_pool.h"

namespace tandem {

namespace {

constexpr int kRounds = 7;
constexpr int64_t kLoopSteps = 200000;

// Best of several rounds: what the machine can do, rather than what other processes left of it.
template <class F>
double BestSeconds(F run) {
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count());
  }
  return best;
}

__attribute__((target("avx512f"))) uint64_t ReadAvx512(const char* memory, int64_t bytes) {
  __m512i sum[4] = {};
  for (int64_t i = 0; i < bytes; i += 256) {
#pragma GCC unroll 4
    for (int64_t v = 0; v < 4; ++v) {
      __builtin_prefetch(memory + i + 4096 + v * 64, 0, 3);
      sum[v] = _mm512_xor_si512(sum[v], _mm512_load_si512(memory + i + v * 64));
    }
  }
  sum[0] = _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(sum[0])));
}

uint64_t ReadPlain(const char* memory, int64_t bytes) {
  uint64_t sum[4] = {};
  const auto* words = reinterpret_cast<const uint64_t*>(memory);
  for (int64_t i = 0; i < bytes / 8; i += 4) {
    for (int64_t v = 0; v < 4; ++v) sum[v] ^= words[i + v];
  }
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

// 24 independent chains, as in the micro-kernel: more than latency times throughput.
__attribute__((target("avx512f,avx512bf16"))) float PeakBf16() {
  __m512 sum[24];
  for (auto& s : sum) s = _mm512_set1_ps(1);
  __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f803f80);
  for (int64_t i = 0; i < kLoopSteps; ++i) {
#pragma GCC unroll 24
    for (auto& s : sum) s = _mm512_dpbf16_ps(s, a, a);
    asm volatile("" : "+v"(a));
  }
  float total = 0;
  for (auto& s : sum) total += _mm512_cvtss_f32(s);
  return total;
}

__attribute__((target("avx512f,avx512vnni"))) float PeakInt8() {
  // Vectors of 32-bit numbers: gcc 12 copies each accumulator of type __m512i at every step.
  using Ints = int __attribute__((vector_size(64)));
  Ints sum[24];
  for (auto& s : sum) s = Ints{};
  Ints a = Ints{} + 0x01010101;
  for (int64_t i = 0; i < kLoopSteps; ++i) {
#pragma GCC unroll 24
    for (auto& s : sum) s = __builtin_ia32_vpdpbusd_v16si(s, a, a);
    asm volatile("" : "+v"(a));
  }
  float total = 0;
#pragma GCC unroll 24
  for (auto& s : sum) total += static_cast<float>(s[0]);
  return total;
}

// Full tiles: four sums, as in the micro-kernel, on numbers that are 0.
struct alignas(64) FullTiles {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

__attribute__((target("amx-tile,amx-bf16"))) float PeakBf16Tiles() {
  static constexpr FullTiles kShape;
  _tile_loadconfig(&kShape);
  for (int64_t i = 0; i < kLoopSteps; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 0;
}

__attribute__((target("amx-tile,amx-int8"))) float PeakInt8Tiles() {
  static constexpr FullTiles kShape;
  _tile_loadconfig(&kShape);
  for (int64_t i = 0; i < kLoopSteps; ++i) {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
  _tile_release();
  return 0;
}

__attribute__((target("avx512f"))) float PeakFloat512() {
  __m512 sum[24];
  for (auto& s : sum) s = _mm512_set1_ps(1);
  __m512 a = _mm512_set1_ps(0.5f);
  for (int64_t i = 0; i < kLoopSteps; ++i) {
#pragma GCC unroll 24
    for (auto& s : sum) s = _mm512_fmadd_ps(s, a, a);
    asm volatile("" : "+v"(a));
  }
  float total = 0;
  for (auto& s : sum) total += _mm512_cvtss_f32(s);
  return total;
}

__attribute__((target("avx2,fma"))) float PeakFloat256() {
  __m256 sum[12];
  for (auto& s : sum) s = _mm256_set1_ps(1);
  __m256 a = _mm256_set1_ps(0.5f);
  for (int64_t i = 0; i < kLoopSteps; ++i) {
#pragma GCC unroll 12
    for (auto& s : sum) s = _mm256_fmadd_ps(s, a, a);
    asm volatile("" : "+x"(a));
  }
  float total = 0;
  for (auto& s : sum) total += _mm256_cvtss_f32(s);
  return total;
}

double ThreadCpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// All threads at once, each by its own CPU time, which other processes do not lower.
double FlopsPerSecond(ComputePool& pool, float (*kernel)(), double flops_per_step) {
  const int64_t chunks = pool.num_threads();
  volatile float sink = 0;
  std::vector<double> best(static_cast<size_t>(chunks), 1e9);  // by chunk
  for (int round = 0; round < kRounds; ++round) {
    pool.Run(chunks, 1, [&](int64_t chunk, int64_t, int) {
      const double start = ThreadCpuSeconds();
      sink = kernel();
      double& seconds = best[static_cast<size_t>(chunk)];
      seconds = std::min(seconds, ThreadCpuSeconds() - start);
    });
  }
  double rate = 0;
  for (const double seconds : best) {
    rate += flops_per_step * static_cast<double>(kLoopSteps) / seconds;
  }
  return rate;
}

}  // namespace

MachineCeilings MeasureCeilings(int num_threads) {
  constexpr int64_t kBytes = int64_t{512} << 20;  // well beyond any last-level cache
  constexpr int64_t kChunk = int64_t{1} << 20;
  const bool has_avx512 = CpuHasIsa(CpuIsa::kAvx512Bf16);
  ComputePool pool(num_threads);
  MachineCeilings result;

  auto backend = MakeReferenceBackend();
  const OwnedTensor memory = backend->device().Allocate(DType::kI32, {kBytes / 4}).value();
  auto* bytes = static_cast<char*>(memory.view().data);
  std::fill_n(bytes, kBytes, 1);
  volatile uint64_t sink = 0;
  const double seconds = BestSeconds([&] {
    pool.Run(kBytes / kChunk, 4, [&](int64_t begin, int64_t end, int) {
      const char* from = bytes + begin * kChunk;
      const int64_t size = (end - begin) * kChunk;
      sink = has_avx512 ? ReadAvx512(from, size) : ReadPlain(from, size);
    });
  });
  result.read_bytes_per_second = static_cast<double>(kBytes) / seconds;

  if (has_avx512) {
    result.bf16_flops_per_second = FlopsPerSecond(pool, PeakBf16, 24 * 16 * 2 * 2);
    result.int8_ops_per_second = FlopsPerSecond(pool, PeakInt8, 24 * 16 * 4 * 2);
    result.float_flops_per_second = FlopsPerSecond(pool, PeakFloat512, 24 * 16 * 2);
  } else if (CpuHasIsa(CpuIsa::kAvx2)) {
    result.float_flops_per_second = FlopsPerSecond(pool, PeakFloat256, 12 * 8 * 2);
  }
  if (CpuHasIsa(CpuIsa::kAmx)) {
    result.vector_bf16_flops_per_second = result.bf16_flops_per_second;
    result.vector_int8_ops_per_second = result.int8_ops_per_second;
    result.bf16_flops_per_second = FlopsPerSecond(pool, PeakBf16Tiles, 4 * 16 * 16 * 32 * 2);
    result.int8_ops_per_second = FlopsPerSecond(pool, PeakInt8Tiles, 4 * 16 * 16 * 64 * 2);
  }
  return result;
}

CpuIsa BenchIsa() {
  const char* const name = std::getenv("TANDEM_BENCH_ISA");
  if (name == nullptr) return CpuIsa::kAuto;
  const std::optional<CpuIsa> isa = FindCpuIsa(name);
  CHECK(isa.has_value()) << "TANDEM_BENCH_ISA is " << name;
  return *isa;
}

std::string ToString(const MachineCeilings& ceilings) {
  char text[300];
  int size =
      std::snprintf(text, sizeof(text),
                    "DRAM read %.1f GB/s, int8 %.0f GOP/s, bf16 %.0f GFLOP/s, float32 %.0f GFLOP/s",
                    ceilings.read_bytes_per_second / 1e9, ceilings.int8_ops_per_second / 1e9,
                    ceilings.bf16_flops_per_second / 1e9, ceilings.float_flops_per_second / 1e9);
  if (ceilings.vector_bf16_flops_per_second > 0) {
    std::snprintf(text + size, sizeof(text) - static_cast<size_t>(size),
                  "; on vectors instead of tiles: int8 %.0f GOP/s, bf16 %.0f GFLOP/s",
                  ceilings.vector_int8_ops_per_second / 1e9,
                  ceilings.vector_bf16_flops_per_second / 1e9);
  }
  return text;
}

}  // namespace tandem
