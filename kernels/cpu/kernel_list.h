#pragma once

// Fills the table of one instruction set; the last include of each isa_*.cc.

#include "kernels/cpu/adapter_kernels.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/block_kernels.h"
#include "kernels/cpu/coded_kernels.h"
#include "kernels/cpu/index_kernels.h"
#include "kernels/cpu/integer_kernels.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/norm_kernels.h"
#include "kernels/cpu/rope_kernels.h"
#include "kernels/cpu/route_kernels.h"
#include "kernels/cpu/state_kernels.h"

namespace tandem {
namespace {

template <class Type>
constexpr TypedKernels ListTypedKernels() {
  return {
      .k_step = Type::kStep,
      .rows = {kTileRows, kTileRows, 1, kPassRows},
      .pack_rows = PackRows<Type>,
      .quantize_rows = QuantizeRows<Type>,
      .quantize_blocks = QuantizeBlocks<Type>,
      .linear = Linear<Type>,
      .decode_panel = DecodePanel<Type>,
      .adapter_inputs = AdapterInputs<Type>,
      .add_adapter_term = AddAdapterTerm<Type>,
      .rms_norm = RmsNorm<Type>,
      .add = AddToResidual<Type>,
      .add_scaled = AddScaled<Type>,
      .silu_and_mul = SiluAndMul<Type>,
      .gelu_and_mul = GeluAndMul<Type>,
      .erf_gelu_and_mul = ErfGeluAndMul<Type>,
      .clamped_silu_and_mul = ClampedSiluAndMul<Type>,
      .activate = Activate<Type>,
      .scale = ScaleRow<Type>,
      .layer_norm = LayerNorm<Type>,
      .rope = Rope<Type>,
      .latent_rope = LatentRopeHeads<Type>,
      .attention = Attention<Type>,
      .index_scores = IndexScores<Type>,
  };
}

constexpr KernelTable ListKernels() {
  return {
      .bf16 = ListTypedKernels<Bf16Type>(),
      .f32 = ListTypedKernels<F32Type>(),
      .int8_rows = {kTileRows, kTileRows, 1, kPassRows},
      .int4_rows = {kTileRows, 4 * kInt4Rows, 1, kPassRows},
      .linear_int8 = Linear<Int8Type>,
      .linear_int4 = LinearInt4,
      .linear_blocks = LinearBlocks<VectorBlocks>,
      .route_top_k = RouteTopK,
      .soft_cap = SoftCap,
      .take_tokens = TakeTokens,
      .state = {.widen = WidenRow,
                .narrow = NarrowRow,
                .silu = SiluRow,
                .sigmoid = SigmoidRow,
                .softplus = SoftplusRow,
                .decay = DecayRow,
                .convolve = ConvolveLoop,
                .delta = DeltaLoop,
                .scan = ScanLoop,
                .select = SelectLoop},
  };
}

}  // namespace
}  // namespace tandem
