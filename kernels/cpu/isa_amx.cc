#include "kernels/cpu/vec_avx512.h"
// After the vectors.
#include "kernels/cpu/amx_attention.h"
#include "kernels/cpu/amx_blocks.h"
#include "kernels/cpu/amx_linear.h"

namespace tandem {

// What has no tiles runs on vectors.
const KernelTable& AmxKernels() {
  static const KernelTable kTable = [] {
    KernelTable table = Avx512Bf16Kernels();
    table.bf16.rows = kTiledRows;
    table.bf16.pack_rows = PackTiledRows<Bf16Type>;
    table.bf16.linear = TiledLinear<Bf16Tiles>;
    table.bf16.attention = Attention<Bf16Type, TiledProducts>;
    table.int8_rows = kTiledRows;
    table.linear_int8 = TiledLinear<Int8Tiles>;
    table.int4_rows = kTiledRows;
    table.int4_rows.direct_rows = 8;  // that many pass over the codes once, on vectors
    table.linear_int4 = TiledInt4;
    table.linear_blocks = TiledLinearBlocks;
    table.bf16.quantize_rows = QuantizeTiledRows<Bf16Type>;
    table.f32.quantize_rows = QuantizeTiledRows<F32Type>;
    return table;
  }();
  return kTable;
}

}  // namespace tandem
