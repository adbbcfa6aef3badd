// Whole model steps without a server: prefill and decode of the measured shapes over random
// weights, beside the ceilings measured just before each row.
//
//   build/release/bench/model_step [shape ...] [--threads=N] [--case=prefill|decode]
//                                  [--quantization=none|int8|int4|int4-g128]
//
// A row: best and median milliseconds per step; the CPU milliseconds of a thread, where each op
// counts with its cheapest step (other processes cannot spoil that, since an op is shorter than a
// time slice); tokens/s of the best step; the share of the ceiling (the larger of bytes over DRAM
// bandwidth and operations over the bf16 peak, in every format) by wall and by CPU time; and the
// parts of the CPU time: linear, attention, rope and KV write, row-wise ops, lm_head, sampling,
// the rest on the host. Greedy sampling, blocks of 32.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "kernels/compute_pool.h"
#include "tests/bench/machine_ceilings.h"
#include "tests/bench/step_bench.h"

namespace tandem {
namespace {

struct Case {
  int32_t num_requests;
  int32_t context;
  int32_t new_tokens;
};

std::string NameOf(const Case& c) {
  return c.new_tokens > 1
             ? "prefill " + std::to_string(c.new_tokens)
             : "decode " + std::to_string(c.num_requests) + " x " + std::to_string(c.context);
}

std::vector<StepTime> Measure(StepBench* bench, const Case& c) {
  constexpr double kSecondsPerCase = 3;
  const double end = WallSeconds() + kSecondsPerCase;
  std::vector<StepTime> times;
  bench->Admit(c.num_requests, c.context, c.new_tokens);  // warms up
  if (c.new_tokens > 1) {
    while (times.size() < 3 || (WallSeconds() < end && times.size() < 40)) {
      times.push_back(bench->Admit(c.num_requests, c.context, c.new_tokens));
    }
    return times;
  }
  while (times.size() < 10 || (WallSeconds() < end && times.size() < 300)) {
    if (times.size() % 64 == 63) bench->Admit(c.num_requests, c.context, c.new_tokens);
    times.push_back(bench->Decode());
  }
  return times;
}

// The cheapest occurrence of each op, and of the time outside ops.
StepTime Cheapest(const std::vector<StepTime>& times) {
  StepTime cheapest = times[0];
  for (const StepTime& time : times) {
    CHECK_EQ(time.ops.size(), cheapest.ops.size());
    cheapest.wall = std::min(cheapest.wall, time.wall);
    cheapest.cpu = std::min(cheapest.cpu, time.cpu);
    for (size_t i = 0; i < time.ops.size(); ++i) {
      cheapest.ops[i].seconds = std::min(cheapest.ops[i].seconds, time.ops[i].seconds);
    }
  }
  return cheapest;
}

void Print(const StepBench& bench, std::string_view shape, const Case& c,
           std::vector<StepTime> times, const MachineCeilings& ceilings) {
  const StepTime cheapest = Cheapest(times);
  std::array<double, kNumOpKinds> by_kind = {};
  double total = cheapest.cpu;
  for (const OpTime& op : cheapest.ops) {
    by_kind[static_cast<size_t>(op.kind)] += op.seconds;
    total += op.seconds;
  }
  const double cpu = total / bench.backend().num_threads();
  std::sort(times.begin(), times.end(),
            [](const StepTime& a, const StepTime& b) { return a.wall < b.wall; });
  const double median = times[times.size() / 2].wall;
  const double peak = ceilings.bf16_flops_per_second > 0 ? ceilings.bf16_flops_per_second
                                                         : ceilings.float_flops_per_second;
  const double floor =
      std::max(bench.StepBytes(c.num_requests, c.context) / ceilings.read_bytes_per_second,
               bench.StepFlops(c.num_requests, c.context, c.new_tokens) / peak);
  std::printf("%-5.*s %-14s %9.3f %9.3f %9.3f %9.0f %5.0f%% %5.0f%% |",
              static_cast<int>(shape.size()), shape.data(), NameOf(c).c_str(), cheapest.wall * 1e3,
              median * 1e3, cpu * 1e3, c.num_requests * c.new_tokens / cheapest.wall,
              100 * floor / cheapest.wall, 100 * floor / cpu);
  for (const double seconds : by_kind) std::printf(" %5.1f", 100 * seconds / total);
  std::printf(" %5.1f | %.1f GB/s %.0f GFLOP/s\n", 100 * cheapest.cpu / total,
              ceilings.read_bytes_per_second / 1e9, peak / 1e9);
  std::fflush(stdout);
}

void RunShape(const ModelShape& shape, int num_threads, WeightFormats formats,
              const std::string& only) {
  StepBench bench(shape, num_threads, formats);
  for (const Case& c : {Case{1, 128, 128}, Case{1, 512, 512}, Case{1, 2048, 2048}, Case{1, 192, 1},
                        Case{8, 192, 1}, Case{32, 192, 1}, Case{1, 2048, 1}, Case{8, 2048, 1}}) {
    if (!only.empty() && NameOf(c).rfind(only, 0) != 0) continue;
    const MachineCeilings ceilings = MeasureCeilings(num_threads);
    Print(bench, shape.name, c, Measure(&bench, c), ceilings);
  }
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  using namespace tandem;
  int num_threads = NumUsableCpus();
  std::string only;
  WeightFormats formats;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--threads=", 0) == 0) {
      num_threads = std::max(1, std::atoi(arg.c_str() + 10));
    } else if (arg.rfind("--case=", 0) == 0) {
      only = arg.substr(7);
    } else if (arg.rfind("--quantization=", 0) == 0) {
      formats = WeightFormatsOf(arg.substr(15));
    } else if (IsModelShape(arg)) {
      names.push_back(arg);
    } else {
      std::fprintf(stderr,
                   "%s is not known\nusage: model_step [%s ...] [--threads=N] "
                   "[--case=prefill|decode] [--quantization=none|int8|int4|int4-g128]\n",
                   argv[i], ModelShapeNames().c_str());
      return 2;
    }
  }
  std::printf("%-20s %9s %9s %9s %9s %6s %6s |%6s%6s%6s%6s%6s%6s%6s  %% of cpu\n", "", "best ms",
              "median", "cpu", "tokens/s", "wall", "cpu", "linear", "attn", "rope", "rows", "head",
              "sample", "rest");
  for (const ModelShape& shape : kModelShapes) {
    if (!names.empty() && std::find(names.begin(), names.end(), shape.name) == names.end()) {
      continue;
    }
    RunShape(shape, num_threads, formats, only);
  }
  return 0;
}
