// Whole model steps without a server: prefill and decode of the measured shapes over made-up
// weights, beside the ceilings measured just before each row.
//
//   build/release/bench/model_step [shape ...] [--threads=N] [--case=prefill|decode]
//                                  [--quantization=none|int8|int4|int4-g128]
//
// A row: best and median milliseconds per step; the CPU milliseconds of a thread, each op at the
// cheapest it was in any step (what others on the machine cannot spoil: an op is shorter than a
// time slice); tokens/s of the best; the share of the ceiling (the larger of bytes over DRAM
// bandwidth and operations over the bf16 peak, whatever is multiplied) by wall and by CPU time; and
// how the CPU time parts: linear, attention, rope and KV write, row-wise ops, lm_head, sampling,
// the rest on the host. Greedy sampling, blocks of 32.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "common/random.h"
#include "engine_core/executor/model_runner.h"
#include "kernels/compute_pool.h"
#include "tests/bench/machine_ceilings.h"
#include "tests/bench/model_shapes.h"
#include "tests/bench/timed_backend.h"

namespace tandem {
namespace {

constexpr int32_t kBlockSize = 32;
constexpr int32_t kMaxModelLen = 2560;
constexpr int32_t kMaxSeqs = 32;
constexpr int32_t kBlocksEach = kMaxModelLen / kBlockSize;

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct StepTime {
  double wall = 0;
  double cpu = 0;  // of all threads together, outside of ops
  std::vector<OpTime> ops;
};

// One model and the requests that a row needs, stepped by hand.
class Bench {
 public:
  Bench(const ModelShape& shape, int num_threads, WeightFormats formats) {
    config_ = ParseModelConfig(shape.config, "").value();
    ModelRunnerOptions options;
    options.limits = {.num_blocks = kMaxSeqs * kBlocksEach + 1,
                      .block_size = kBlockSize,
                      .max_num_seqs = kMaxSeqs,
                      .max_num_batched_tokens = 2048,
                      .max_model_len = kMaxModelLen,
                      .vocab_size = static_cast<int32_t>(config_.vocab_size)};
    auto backend = std::make_unique<TimedBackend>(
        MakeCpuBackend({.dtype = DType::kBf16, .num_threads = num_threads}).value());
    backend_ = backend.get();
    const auto weights = MakeDummyWeights(1);
    auto model =
        LoadModel({config_, ModelLimitsOf(options.limits), *weights, *backend, formats}).value();
    runner_ = ModelRunner::Create(std::move(backend), std::move(model), config_, options).value();
    params_.temperature = 0;
    params_.max_tokens = kMaxModelLen;
  }

  const Backend& backend() const { return *backend_; }

  // Requests of `context` tokens, of which all but the last `new_tokens` count as computed.
  StepTime Admit(int32_t num_requests, int32_t context, int32_t new_tokens) {
    for (int32_t r = 0; r < num_running_; ++r) step_.freed_slots.push_back(RequestSlot{r});
    num_running_ = num_requests;
    prompts_.clear();
    for (int32_t r = 0; r < num_requests; ++r) {
      std::vector<TokenId>& prompt = prompts_.emplace_back();
      for (int32_t t = 0; t < context; ++t) {
        const double draw = UniformAt(1, static_cast<uint64_t>(t), static_cast<uint64_t>(r));
        prompt.push_back(static_cast<TokenId>(draw * static_cast<double>(config_.vocab_size)));
      }
    }
    for (int32_t r = 0; r < num_requests; ++r) {
      step_.admitted.push_back({r, &id_, &params_, prompts_[static_cast<size_t>(r)], context});
      step_.requests.push_back({.slot = RequestSlot{r},
                                .num_computed_tokens = context - new_tokens,
                                .num_scheduled_tokens = new_tokens,
                                .new_blocks_begin = r * kBlocksEach,
                                .num_new_blocks = kBlocksEach,
                                .kind = ScheduledKind::kNew,
                                .needs_sample = true});
      for (int32_t b = 0; b < kBlocksEach; ++b) {
        step_.new_block_ids.push_back(BlockId{1 + r * kBlocksEach + b});
      }
    }
    context_ = context;
    return Run();
  }

  StepTime Decode() {
    for (int32_t r = 0; r < num_running_; ++r) {
      step_.requests.push_back({.slot = RequestSlot{r},
                                .num_computed_tokens = context_,
                                .num_scheduled_tokens = 1,
                                .needs_sample = true});
    }
    ++context_;
    return Run();
  }

  // What a step must read: weights, lm_head and the keys and values of `context` tokens each.
  double StepBytes(int32_t num_requests, int32_t context) const {
    const int64_t embedding = config_.tie_word_embeddings ? 0 : backend_->largest_packed_bytes();
    const double kv = static_cast<double>(2 * config_.num_layers * config_.num_kv_heads *
                                          config_.head_dim * SizeOf(backend_->activation_dtype()));
    return static_cast<double>(backend_->packed_bytes() - embedding) + kv * num_requests * context;
  }

  // Multiplications and additions of a step whose requests run `new_tokens` tokens each.
  double StepFlops(int32_t num_requests, int32_t context, int32_t new_tokens) const {
    const auto head = static_cast<double>(config_.vocab_size * config_.hidden_size);
    const double q_size = static_cast<double>(config_.num_heads * config_.head_dim);
    const double kv_size = static_cast<double>(config_.num_kv_heads * config_.head_dim);
    const auto hidden = static_cast<double>(config_.hidden_size);
    const double layer =
        hidden * (2 * q_size + 2 * kv_size + 3 * static_cast<double>(config_.intermediate_size));
    const double keys = context - (new_tokens - 1) / 2.0;
    const auto layers = static_cast<double>(config_.num_layers);
    return num_requests * (2 * head + new_tokens * layers * (2 * layer + 4 * q_size * keys));
  }

 private:
  StepTime Run() {
    step_.num_scheduled_tokens = 0;
    for (const ScheduledRequest& request : step_.requests) {
      step_.num_scheduled_tokens += request.num_scheduled_tokens;
    }
    backend_->ResetTimes();
    StepTime time;
    const double wall = WallSeconds(), cpu = ProcessCpuSeconds();
    const Status status = runner_->Execute(step_, &output_);
    time.wall = WallSeconds() - wall;
    time.cpu = ProcessCpuSeconds() - cpu;
    time.ops = backend_->times();
    for (const OpTime& op : time.ops) time.cpu -= op.seconds;
    CHECK(status.ok() && output_.results.empty()) << status.ToString();
    step_.Clear();
    return time;
  }

  ModelConfig config_;
  TimedBackend* backend_ = nullptr;
  std::unique_ptr<ModelRunner> runner_;
  wire::SamplingParams params_;
  RequestId id_ = "bench";
  std::vector<std::vector<TokenId>> prompts_;
  int32_t num_running_ = 0;
  int32_t context_ = 0;
  SchedulerOutput step_;
  ModelOutput output_;
};

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

std::vector<StepTime> Measure(Bench* bench, const Case& c) {
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

// The cheapest of each op, and of what is not an op.
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

void Print(const Bench& bench, std::string_view shape, const Case& c, std::vector<StepTime> times,
           const MachineCeilings& ceilings) {
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
  Bench bench(shape, num_threads, formats);
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
    } else {
      names.push_back(arg);
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
