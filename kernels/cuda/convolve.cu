// Convolve: a thread has one channel of a request, and its last inputs in registers.

#include "kernels/cuda/any_rows.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/state_runs.cuh"

namespace tandem {
namespace {

constexpr int kThreads = 128;
constexpr int kTokensAtOnce = 8;  // whose inputs are loaded together

struct ConvArgs {
  AnyRows out, x;
  const float* weight;  // [kernel, .]
  int64_t weight_stride;
  const float* bias;  // or null
  int64_t channels;
  int kernel;
  bool has_silu;
};

// kTaps: at least args.kernel. The taps are the last ones.
template <int kTaps>
__global__ void __launch_bounds__(kThreads) ConvolveKernel(ConvArgs args, StateArgs states) {
  WaitForPreviousKernel();
  const int64_t channel = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (channel >= args.channels) return;
  const int first_tap = kTaps - args.kernel;
  const float bias = args.bias == nullptr ? 0 : args.bias[channel];
  float taps[kTaps], kept[kTaps];  // inputs: the last of `kept` is the token's own
#pragma unroll
  for (int j = 0; j < kTaps; ++j) {
    taps[j] = j < first_tap ? 0 : args.weight[(j - first_tap) * args.weight_stride + channel];
  }
  ForEachRun(states, [&](const CudaStateRun& run) {
    const float* before =
        run.first_position == 0 ? nullptr : states.At(run, run.first_position - 1) + channel;
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) {
      const bool is_there = j >= first_tap && before != nullptr;
      kept[j] = is_there ? before[(j - first_tap) * args.channels] : 0;
    }
    for (int begin = 0; begin < run.num_tokens; begin += kTokensAtOnce) {
      float inputs[kTokensAtOnce];
#pragma unroll
      for (int i = 0; i < kTokensAtOnce; ++i) {
        const int64_t token = run.first_token + begin + i;
        inputs[i] = begin + i < run.num_tokens ? args.x.Load(token, channel) : 0;
      }
#pragma unroll
      for (int i = 0; i < kTokensAtOnce; ++i) {
        if (begin + i >= run.num_tokens) break;
        kept[kTaps - 1] = inputs[i];
        float sum = bias;
#pragma unroll
        for (int j = 0; j < kTaps; ++j) {
          if (j >= first_tap) sum += taps[j] * kept[j];
        }
        args.out.Store(run.first_token + begin + i, channel, args.has_silu ? Silu::Of(sum) : sum);
#pragma unroll
        for (int j = 0; j + 1 < kTaps; ++j) kept[j] = kept[j + 1];
        if (!states.IsKept(run, begin + i)) continue;
        float* after = states.At(run, run.first_position + begin + i) + channel;
#pragma unroll
        for (int j = 0; j + 1 < kTaps; ++j) {
          if (j >= first_tap) after[(j - first_tap) * args.channels] = kept[j];
        }
      }
    }
  });
}

}  // namespace

void CudaOps::DoConvolve(const Tensor& out, const Tensor& x, const ConvOptions& options,
                         const StatePart& state, const AttentionPlan& generic_plan) {
  const auto& plan = static_cast<const CudaAttentionPlan&>(generic_plan);
  const int64_t channels = x.shape[1];
  const ConvArgs args = {.out = RowsOf(out),
                         .x = RowsOf(x),
                         .weight = options.weight.Data<float>(),
                         .weight_stride = options.weight.row_stride,
                         .bias = options.bias.empty() ? nullptr : options.bias.Data<float>(),
                         .channels = channels,
                         .kernel = static_cast<int>(options.weight.rows()),
                         .has_silu = options.has_silu};
  const dim3 grid(static_cast<unsigned>(plan.num_state_runs),
                  static_cast<unsigned>((channels + kThreads - 1) / kThreads));
  const StateArgs states = StateArgsOf(state, plan);
  if (args.kernel <= 4) return Launch(queue(), grid, kThreads, ConvolveKernel<4>, args, states);
  Launch(queue(), grid, kThreads, ConvolveKernel<8>, args, states);
}

}  // namespace tandem
