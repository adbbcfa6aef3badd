// Products with matrices in codes. Up to kMostCodedRows rows are multiplied with the codes on the
// tensor cores; for more rows the numbers are written to memory, some rows of the matrix at a time,
// and multiplied as others are, or, of e4m3 whose scheme rounds activations, cuBLASLt takes the
// codes and activations in e4m3. In each case a step reads the codes once.

#include <algorithm>

#include "kernels/cuda/coded_tiles.cuh"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/expert_rows.cuh"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kMostTiles = 4;
constexpr int64_t kPassRows = kMostTiles * kTileRows;  // of x, in a block
// Each pass reads the codes from the cache again. With more rows writing the numbers once is less.
constexpr int64_t kMostCodedRows = 2 * kPassRows;
constexpr int64_t kExpandedNumbers = int64_t{32} << 20;  // at a time
constexpr int kThreads = 256;

template <CodedKind kKind, int kTiles, class Out>
__global__ void __launch_bounds__(kSkinnyThreads)
    CodedKernel(Out* out, const Bf16* x, const uint8_t* codes, CodedLayout layout,
                SkinnyArgs args) {
  __shared__ TileSums<kTiles, false> sums[kSkinnyWarps];
  __shared__ unsigned table[16];
  LoadTable<kKind>(layout, table);
  const int64_t first = int64_t{blockIdx.y} * kPassRows;
  out += first * args.linear.out_stride;
  x += first * args.linear.x_stride;
  args.linear.m = args.linear.m - first < kPassRows ? args.linear.m - first : kPassRows;
  MultiplyCodedTiles<kKind, kTiles, /*kWaits=*/true>(out, x, codes, layout, args, table, sums);
}

template <CodedKind kKind>
__global__ void __launch_bounds__(kSkinnyThreads)
    CodedExpertKernel(Bf16* out, const Bf16* x, ExpertList experts, CodedLayout layout,
                      SkinnyArgs args) {
  __shared__ TileSums<kMostTiles, false> memory[kSkinnyWarps];
  __shared__ unsigned table[16];
  LoadTable<kKind>(layout, table);
  WaitForPreviousKernel();
  ForEachRows<kPassRows, uint8_t>(
      experts, [&](int64_t row, int64_t count, const uint8_t* codes, int32_t expert) {
        SkinnyArgs rows = args;
        rows.linear.m = count;
        if (rows.linear.bias != nullptr) rows.linear.bias += expert * rows.linear.n;
        Bf16* to = out + row * args.linear.out_stride;
        const Bf16* from = x + row * args.linear.x_stride;
        const auto multiply = [&]<int kTiles>() {
          auto* sums = reinterpret_cast<TileSums<kTiles, false>*>(memory);
          MultiplyCodedTiles<kKind, kTiles, /*kWaits=*/false>(to, from, codes, layout, rows, table,
                                                              sums);
        };
        if (count <= kTileRows) return multiply.template operator()<1>();
        if (count <= 2 * kTileRows) return multiply.template operator()<2>();
        multiply.template operator()<kMostTiles>();
      });
}

template <class Out>
__global__ void ExpandKernel(Out* out, int64_t out_stride, const uint8_t* codes, CodedLayout layout,
                             const int32_t* order, int64_t first) {
  WaitForPreviousKernel();
  for (int64_t k = threadIdx.x; k < layout.num_columns; k += kThreads) {
    const int64_t column = order == nullptr ? k : order[k];
    StoreFloat(out + blockIdx.x * out_stride + column,
               CodedNumber(codes, layout, first + blockIdx.x, k));
  }
}

// Rows of the part alone; with is_first also those of ids that are in no part, as zeros.
__global__ void CodedEmbeddingKernel(float* out, int64_t out_stride, const int32_t* ids,
                                     int64_t table_rows, const uint8_t* codes, CodedLayout layout,
                                     const int32_t* order, int64_t first_row, float scale) {
  WaitForPreviousKernel();
  const int64_t id = ids[blockIdx.x], row = id - first_row;
  const bool is_valid = id >= 0 && id < table_rows;
  if (is_valid ? row < 0 || row >= layout.num_rows : first_row != 0) return;
  for (int64_t k = threadIdx.x; k < layout.num_columns; k += kThreads) {
    const int64_t column = order == nullptr ? k : order[k];
    // The number is that of the compute type.
    const float number = is_valid ? ToFloat(ToBf16(CodedNumber(codes, layout, row, k))) : 0;
    out[blockIdx.x * out_stride + column] = number * scale;
  }
}

__global__ void OrderKernel(Bf16* out, int64_t out_stride, const Bf16* x, int64_t x_stride,
                            const int32_t* order, int64_t size) {
  WaitForPreviousKernel();
  for (int64_t k = threadIdx.x; k < size; k += kThreads) {
    out[blockIdx.x * out_stride + k] = x[blockIdx.x * x_stride + order[k]];
  }
}

// A row of x as e4m3 times a scale of its own, max |x| / 448.
__global__ void Float8RowsKernel(uint8_t* out, float* scales, const Bf16* x, int64_t x_stride,
                                 int64_t size) {
  __shared__ float maxima[kThreads / kWarpSize];
  WaitForPreviousKernel();
  x += blockIdx.x * x_stride;
  float max = 0;
  for (int64_t k = threadIdx.x; k < size; k += kThreads) {
    const float number = fabsf(LoadFloat(x + k));
    max = number > max || number != number ? number : max;
  }
  max = WarpMax(max);
  if (threadIdx.x % kWarpSize == 0) maxima[threadIdx.x / kWarpSize] = max;
  __syncthreads();
  for (const float other : maxima) max = fmaxf(max, other);
  const float scale = max > 0 ? max / kMaxFloat8 : 1;
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  for (int64_t k = threadIdx.x; k < size; k += kThreads) {
    out[blockIdx.x * size + k] = FloatToFloat8(LoadFloat(x + k) / scale);
  }
}

bool HasPairs(const Tensor& x) {
  return x.dtype == DType::kBf16 && x.row_stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 8 == 0;
}

// f.operator()<kKind>()
template <class F>
void WithKind(CodedKind kind, F f) {
  switch (kind) {
    case CodedKind::kNibbles:
      return f.template operator()<CodedKind::kNibbles>();
    case CodedKind::kTable:
      return f.template operator()<CodedKind::kTable>();
    case CodedKind::kBytes:
      return f.template operator()<CodedKind::kBytes>();
    case CodedKind::kFloat8:
      return f.template operator()<CodedKind::kFloat8>();
  }
}

SkinnyArgs ArgsOf(const CodedLayout& layout, const Tensor& y, const Tensor& x, const Tensor& bias,
                  bool accumulate) {
  return {.linear = {.x_stride = x.row_stride,
                     .weight_stride = 0,
                     .out_stride = y.row_stride,
                     .m = x.rows(),
                     .n = layout.num_rows,
                     .k = layout.num_columns,
                     .bias = bias.empty() ? nullptr : bias.Data<float>(),
                     .accumulate = accumulate}};
}

// Depth of the chunks that a warp has at least.
int64_t LeastDepthOf(const CodedLayout& layout) { return 4 * layout.chunk(); }

}  // namespace

void CudaOps::MultiplyCoded(const Tensor& out, const Tensor& x, const CudaMatrix& matrix,
                            const Tensor& bias, LinearEpilogue epilogue) {
  const bool is_gate =
      epilogue == LinearEpilogue::kSiluAndMul || epilogue == LinearEpilogue::kGeluAndMul;
  const Tensor y = is_gate ? Scratch(&ungated_, dtype_, x.rows(), matrix.n()) : out;
  if (y.empty()) return;
  for (const CodedPart& part : matrix.parts()) {
    const int64_t rows = part.layout.num_rows;
    MultiplyPart(y.Columns(part.first_row, rows), x, part,
                 bias.empty() ? bias : bias.Rows(part.first_row, rows),
                 epilogue == LinearEpilogue::kAddResidual);
  }
  if (epilogue == LinearEpilogue::kSiluAndMul) return SiluAndMul(out, y);
  if (epilogue == LinearEpilogue::kGeluAndMul) return GeluAndMul(out, y);
}

void CudaOps::MultiplyPart(const Tensor& y, const Tensor& x, const CodedPart& part,
                           const Tensor& bias, bool accumulate) {
  const CodedLayout& layout = part.layout;
  const Tensor rows = InOrder(x, part);
  if (rows.empty()) return;
  if (rows.rows() > kMostCodedRows || !HasPairs(rows)) {
    if (MultiplyFloat8(y, rows, part, bias, accumulate)) return;
    const int64_t most = std::max<int64_t>(1, kExpandedNumbers / layout.num_columns);
    for (int64_t first = 0; first < layout.num_rows; first += most) {
      const int64_t count = std::min(most, layout.num_rows - first);
      const Tensor numbers = Scratch(&expanded_, dtype_, count, layout.num_columns);
      if (numbers.empty()) return;
      Expand(numbers, part, first, /*in_order=*/false);
      Multiply(
          y.Columns(first, count), rows,
          {.data = numbers.data, .stride = numbers.row_stride, .n = count, .k = layout.num_columns},
          bias.empty() ? bias : bias.Rows(first, count), accumulate);
    }
    return;
  }
  SkinnyArgs args = ArgsOf(layout, y, rows, bias, accumulate);
  args.split = ChooseSplit(layout.num_tiles(), layout.num_columns, LeastDepthOf(layout),
                           device_->num_multiprocessors());
  const int64_t tiles_per_block = kSkinnyWarps / args.split;
  const dim3 grid(
      static_cast<unsigned>((layout.num_tiles() + tiles_per_block - 1) / tiles_per_block),
      static_cast<unsigned>((x.rows() + kPassRows - 1) / kPassRows));
  WithType(y, [&]<class Out>(Out* out) {
    WithKind(layout.kind, [&]<CodedKind kKind>() {
      const auto launch = [&](auto* kernel) {
        Launch(queue(), grid, kSkinnyThreads, kernel, out,
               static_cast<const Bf16*>(rows.Data<Bf16>()), part.codes(), layout, args);
      };
      if (x.rows() <= kTileRows) return launch(CodedKernel<kKind, 1, Out>);
      if (x.rows() <= 2 * kTileRows) return launch(CodedKernel<kKind, 2, Out>);
      launch(CodedKernel<kKind, kMostTiles, Out>);
    });
  });
}

bool CudaOps::MultiplyFloat8(const Tensor& y, const Tensor& x, const CodedPart& part,
                             const Tensor& bias, bool accumulate) {
  const CodedLayout& layout = part.layout;
  if (cublaslt_ == nullptr || !part.has_float8_activations || x.dtype != DType::kBf16) return false;
  const int64_t columns = layout.num_columns;
  const Tensor codes = Scratch(&float8_x_, DType::kI8, x.rows(), columns);
  const Tensor scales = Scratch(&float8_scales_, DType::kF32, x.rows(), 1);
  if (codes.empty() || scales.empty()) return true;  // the device's status reports it
  auto* const x_codes = static_cast<uint8_t*>(codes.data);
  auto* const x_scales = static_cast<float*>(scales.data);
  Launch(queue(), static_cast<unsigned>(x.rows()), kThreads, Float8RowsKernel, x_codes, x_scales,
         static_cast<const Bf16*>(x.Data<Bf16>()), x.row_stride, columns);
  const GemmTask task = {.x = x_codes,
                         .x_stride = columns,
                         .weight = part.codes(),
                         .weight_stride = layout.num_chunks() * kFloat8Columns,
                         .out = y.data,
                         .out_stride = y.row_stride,
                         .m = x.rows(),
                         .n = layout.num_rows,
                         .k = columns,
                         .in = DType::kI8,
                         .out_dtype = y.dtype,
                         .accumulate = accumulate,
                         .x_scales = x_scales,
                         .weight_scales = reinterpret_cast<const float*>(
                             part.codes() + layout.num_tiles() * layout.code_bytes())};
  if (!cublaslt_->TryGemm(task)) return false;
  if (!bias.empty()) AddBias(y, bias);
  return true;
}

Tensor CudaOps::InOrder(const Tensor& x, const CodedPart& part) {
  if (part.order.view().empty()) return x;
  const Tensor out = Scratch(&ordered_, dtype_, x.rows(), part.layout.num_columns);
  if (out.empty()) return out;
  Launch(queue(), static_cast<unsigned>(x.rows()), kThreads, OrderKernel, out.Data<Bf16>(),
         out.row_stride, static_cast<const Bf16*>(x.Data<Bf16>()), x.row_stride, part.order_data(),
         part.layout.num_columns);
  return out;
}

void CudaOps::Expand(const Tensor& out, const CodedPart& part, int64_t first, bool in_order) {
  const int32_t* const order = in_order ? part.order_data() : nullptr;
  WithType(out, [&]<class Out>(Out* data) {
    Launch(queue(), static_cast<unsigned>(out.rows()), kThreads, ExpandKernel<Out>, data,
           out.row_stride, part.codes(), part.layout, order, first);
  });
}

void CudaOps::EmbedCoded(const Tensor& out, const Tensor& ids, const CudaMatrix& table,
                         float scale) {
  for (const CodedPart& part : table.parts()) {
    Launch(queue(), static_cast<unsigned>(ids.rows()), kThreads, CodedEmbeddingKernel,
           out.Data<float>(), out.row_stride, ids.Data<int32_t>(), table.n(), part.codes(),
           part.layout, part.order_data(), part.first_row, scale);
  }
}

StatusOr<std::unique_ptr<PackedMatrix>> CudaOps::ToNumbers(const CudaMatrix& coded) {
  constexpr int64_t kAlign = 8;  // numbers in 16 bytes
  const int64_t shape[] = {coded.n(), (coded.k() + kAlign - 1) / kAlign * kAlign};
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateDevice(dtype_, shape, device_->stream()));
  for (const CodedPart& part : coded.parts()) {
    Expand(memory.view().Rows(part.first_row, part.layout.num_rows), part, 0,
           /*in_order=*/true);
  }
  return std::unique_ptr<PackedMatrix>(
      std::make_unique<CudaMatrix>(coded.k(), coded.is_gated(), std::move(memory)));
}

void CudaOps::MultiplyCodedExperts(const Tensor& out, const Tensor& x, const CodedPart& shape,
                                   const ExpertList& experts, int64_t num_chosen,
                                   const Tensor& bias) {
  const CodedLayout& layout = shape.layout;
  SkinnyArgs args = ArgsOf(layout, out, x, bias, /*accumulate=*/false);
  args.linear.m = 0;  // set per expert
  args.split = ChooseSplit(layout.num_tiles() * num_chosen, layout.num_columns,
                           LeastDepthOf(layout), device_->num_multiprocessors());
  const int64_t tiles_per_block = kSkinnyWarps / args.split;
  const dim3 grid(
      static_cast<unsigned>((layout.num_tiles() + tiles_per_block - 1) / tiles_per_block),
      static_cast<unsigned>(num_chosen));
  WithKind(layout.kind, [&]<CodedKind kKind>() {
    Launch(queue(), grid, kSkinnyThreads, CodedExpertKernel<kKind>, out.Data<Bf16>(),
           static_cast<const Bf16*>(x.Data<Bf16>()), experts, layout, args);
  });
}

}  // namespace tandem
