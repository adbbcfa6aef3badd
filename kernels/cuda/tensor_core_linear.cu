// Matrix products of 5 to 16 rows, on the tensor cores. Like products of fewer rows they are bound
// by reading the weights once, but plain multiplications would not keep up with that.

#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_core_linear.cuh"

namespace tandem {
namespace {

template <int kTiles, bool kGated, class Out>
__global__ void __launch_bounds__(kSkinnyThreads)
    TensorCoreKernel(Out* out, const Bf16* x, const Bf16* weight, SkinnyArgs args) {
  __shared__ TileSums<kTiles, kGated> sums[kSkinnyWarps];
  MultiplyTiles<kTiles, kGated, /*kWaits=*/true>(out, x, weight, args, sums);
}

template <int kTiles, bool kGated, class Out>
void LaunchTiles(OverlappingStream stream, Out* out, const Bf16* x, const Bf16* weight,
                 SkinnyArgs args, int64_t num_multiprocessors) {
  const int64_t num_columns = kGated ? args.linear.n / 2 : args.linear.n;
  const int64_t num_warps = (num_columns + kTileColumns - 1) / kTileColumns;
  args.split = ChooseSplit(num_warps, args.linear.k, 2 * kTileDepth, num_multiprocessors);
  const int64_t warps_per_block = kSkinnyWarps / args.split;
  Launch(stream, static_cast<unsigned>((num_warps + warps_per_block - 1) / warps_per_block),
         kSkinnyThreads, TensorCoreKernel<kTiles, kGated, Out>, out, x, weight, args);
}

}  // namespace

template <class Out>
bool LaunchTensorCores(OverlappingStream stream, Out* out, const Bf16* x, const Bf16* weight,
                       bool is_gated, SkinnyArgs args, int64_t num_multiprocessors) {
  if (!HasWideRows(x, args.linear) || args.linear.m > 2 * kTileRows) return false;
  const auto launch = [&](auto* function) {
    function(stream, out, x, weight, args, num_multiprocessors);
    return true;
  };
  if (args.linear.m <= kTileRows) {
    return launch(is_gated ? LaunchTiles<1, true, Out> : LaunchTiles<1, false, Out>);
  }
  return launch(is_gated ? LaunchTiles<2, true, Out> : LaunchTiles<2, false, Out>);
}

template bool LaunchTensorCores(OverlappingStream, float*, const Bf16*, const Bf16*, bool,
                                SkinnyArgs, int64_t);
template bool LaunchTensorCores(OverlappingStream, Bf16*, const Bf16*, const Bf16*, bool,
                                SkinnyArgs, int64_t);

}  // namespace tandem
