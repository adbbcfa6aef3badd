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
// Each pass reads the codes from the cache again. With more rows writing the numbers once is less:
// of 8192 x 8192 in 4 bits it takes 78 us on an H100, multiplying 128 rows by them 53 us.
constexpr int64_t kMostCodedRows = 3 * kPassRows;
constexpr int64_t kExpandedNumbers = int64_t{32} << 20;  // at a time
constexpr int kThreads = 256;
// Of ExpandKernel: chunks of a warp.
constexpr int kExpandedChunks = 4;

// With one tile of x registers leave room for 32 warps of a multiprocessor, else for 16. More tiles
// come through shared memory: read by each warp for itself they would take longer than the codes.
template <int kTiles>
using BlockOf = CodedBlock<16, kTiles == 1 ? 2 : 4, (kTiles > 1)>;
constexpr int NumBlocks(int num_tiles) { return num_tiles == 1 ? 2 : 1; }

template <CodedKind kKind, ScaleForm kForm, int kTiles, class Out>
__global__ void __launch_bounds__(BlockOf<kTiles>::kThreads, NumBlocks(kTiles))
    CodedKernel(Out* out, const Bf16* x, const uint8_t* codes, CodedLayout layout,
                SkinnyArgs args) {
  constexpr int64_t kRows = kTiles * kTileRows;
  __shared__ CodedMemory<kTiles, BlockOf<kTiles>> memory;
  __shared__ unsigned table[16];
  LoadTable<kKind>(layout, table);
  const int64_t first = int64_t{blockIdx.y} * kRows;
  out += first * args.linear.out_stride;
  x += first * args.linear.x_stride;
  args.linear.m = args.linear.m - first < kRows ? args.linear.m - first : kRows;
  MultiplyCodedTiles<kKind, kForm, kTiles, BlockOf<kTiles>, /*kWaits=*/true>(out, x, codes, layout,
                                                                             args, table, &memory);
}

template <CodedKind kKind, ScaleForm kForm>
__global__ void __launch_bounds__(kSkinnyThreads, HasFloats(kForm) ? 2 : 1)
    CodedExpertKernel(Bf16* out, const Bf16* x, ExpertList experts, CodedLayout layout,
                      SkinnyArgs args) {
  using Block = CodedBlock<kSkinnyWarps, 4, false>;
  __shared__ CodedMemory<kMostTiles, Block> memory;
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
          MultiplyCodedTiles<kKind, kForm, kTiles, Block, /*kWaits=*/false>(
              to, from, codes, layout, rows, table,
              reinterpret_cast<CodedMemory<kTiles, Block>*>(&memory));
        };
        if (count <= kTileRows) return multiply.template operator()<1>();
        if (count <= 2 * kTileRows) return multiply.template operator()<2>();
        multiply.template operator()<kMostTiles>();
      });
}

// The numbers of a lane's two steps of one row, rounded to bf16: eight of them in wide steps.
__device__ inline uint4 ScaledPairs(const unsigned (&first)[4], const unsigned (&second)[4],
                                    int lower, const GroupNumbers (&groups)[2]) {
  const auto scaled = [](unsigned pair, const GroupNumbers& group) {
    return PackPair(std::bit_cast<float>(pair << 16) * group.scale + group.offset,
                    std::bit_cast<float>(pair & 0xffff0000) * group.scale + group.offset);
  };
  return {scaled(first[lower], groups[0]), scaled(first[2 + lower], groups[0]),
          scaled(second[lower], groups[1]), scaled(second[2 + lower], groups[1])};
}

// Stores them in row `to`, at their columns, or at the places of these in `order`.
template <CodedKind kKind>
__device__ inline void StoreSteps(Bf16* to, const uint4& numbers, int at, int piece,
                                  const CodedLayout& layout, int half, const int32_t* order) {
  const unsigned words[] = {numbers.x, numbers.y, numbers.z, numbers.w};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int step = 2 * half + i;
    const bool is_float8 = kKind == CodedKind::kFloat8, is_wide = is_float8 || layout.is_wide();
    const int column = at + (is_float8 ? piece * 16 + step * 4
                             : is_wide ? half * 32 + piece * 8 + i * 4
                                       : step * static_cast<int>(kCodedStep) + piece * 4);
    if (column >= layout.num_columns) continue;
    if (order != nullptr) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        to[order[column + j]].bits = static_cast<uint16_t>(words[2 * i + j / 2] >> j % 2 * 16);
      }
    } else if (!is_wide) {
      *reinterpret_cast<uint2*>(to + column) = {words[2 * i], words[2 * i + 1]};
    } else if (i == 0) {
      *reinterpret_cast<uint4*>(to + column) = numbers;
    }
  }
}

// Writes the numbers of the tiles from first_tile on. Rows of `out` are multiples of 16 bytes,
// aligned to them.
template <CodedKind kKind, ScaleForm kForm>
__global__ void __launch_bounds__(kThreads)
    ExpandKernel(Bf16* out, int64_t out_stride, const uint8_t* codes, CodedLayout layout,
                 const int32_t* order, int64_t first_tile) {
  using Piece = CodedPiece<kKind>;
  __shared__ unsigned table[16];
  LoadTable<kKind>(layout, table);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = lane / 4, piece = lane % 4;
  const int64_t tile = first_tile + blockIdx.x;
  const int num_chunks = static_cast<int>(layout.num_chunks());
  const int first = (static_cast<int>(blockIdx.y) * (kThreads / kWarpSize) +
                     static_cast<int>(threadIdx.x) / kWarpSize) *
                    kExpandedChunks;
  const uint8_t* const tile_codes = codes + tile * layout.code_bytes();
  const uint8_t* const tile_scales =
      codes + layout.num_tiles() * layout.code_bytes() + tile * layout.scale_bytes();
  const LaneScales<kKind, kForm> scales(layout, lane);
  Piece pieces[kExpandedChunks];
  RawGroup groups[kExpandedChunks];
#pragma unroll
  for (int u = 0; u < kExpandedChunks; ++u) {
    if (first + u >= num_chunks) break;
    pieces[u].Load(tile_codes, layout, first + u, lane);
    groups[u] = scales.Load(tile_scales, first + u, 0);
  }
  WaitForPreviousKernel();
#pragma unroll
  for (int u = 0; u < kExpandedChunks; ++u) {
    const int chunk = first + u;
    if (chunk >= num_chunks) break;
    LaneGroups lane_groups;
#pragma unroll
    for (int half = 0; half < Piece::kHalves; ++half) {
      scales.Begin(groups[u], tile_scales, chunk, half, &lane_groups);
      unsigned a[2][4];
      GroupNumbers numbers[2][2];  // of the upper and the lower row, in both steps
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int step = 2 * half + i;
        scales.SetZeros(step, &lane_groups);
        pieces[u].Fragment(step, lane_groups.zeros, table, a[i]);
        numbers[0][i] = scales.Of(step, 0, lane_groups);
        numbers[1][i] = scales.Of(step, 1, lane_groups);
      }
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const int64_t in_tile = row + lower * 8;
        if (tile * kCodedRows + in_tile >= layout.num_rows) break;
        StoreSteps<kKind>(out + (blockIdx.x * kCodedRows + in_tile) * out_stride,
                          ScaledPairs(a[0], a[1], lower, numbers[lower]), chunk * Piece::kChunk,
                          piece, layout, half, order);
      }
    }
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

bool HasWideSteps(const Tensor& x) {
  return x.dtype == DType::kBf16 && x.row_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

// f.operator()<kKind, kForm>()
template <class F>
void WithForm(const CodedLayout& layout, F f) {
  using enum ScaleForm;
  using enum CodedKind;
  const ScaleForm form = FormOf(layout);
  switch (layout.kind) {
    case kNibbles:
      if (form == kFloats) return f.template operator()<kNibbles, kFloats>();
      if (form == kZeros) return f.template operator()<kNibbles, kZeros>();
      if (form == kOffsets) return f.template operator()<kNibbles, kOffsets>();
      return f.template operator()<kNibbles, kOthers>();
    case kTable:
      if (form == kFloats) return f.template operator()<kTable, kFloats>();
      return f.template operator()<kTable, kOthers>();
    case kBytes:
      if (form == kFloats) return f.template operator()<kBytes, kFloats>();
      if (form == kZeros) return f.template operator()<kBytes, kZeros>();
      if (form == kOffsets) return f.template operator()<kBytes, kOffsets>();
      return f.template operator()<kBytes, kOthers>();
    case kFloat8:
      return f.template operator()<kFloat8, kFloats>();
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

// Warps that share a tile's depth, at most `most` of a block's: those that take the fewest chunks
// one after another, with what a block takes to begin and to end, in as many waves of blocks as the
// device has room for. num_passes: over rows of x.
int ChooseCodedSplit(const CodedLayout& layout, int num_warps, int most, int64_t num_passes,
                     int64_t room) {
  constexpr int64_t kChunksOfBlock = 4;
  int best = 1;
  int64_t least = INT64_MAX;
  for (int split = 1; split <= most; split *= 2) {
    const int64_t blocks = (layout.num_tiles() * split + num_warps - 1) / num_warps * num_passes;
    const int64_t waves = (blocks + room - 1) / room;
    const int64_t chunks = waves * ((layout.num_chunks() + split - 1) / split + kChunksOfBlock);
    if (chunks < least) {
      least = chunks;
      best = split;
    }
  }
  return best;
}

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
  if (rows.rows() > kMostCodedRows || !HasWideSteps(rows)) {
    if (MultiplyFloat8(y, rows, part, bias, accumulate)) return;
    const int64_t most =
        std::max<int64_t>(1, kExpandedNumbers / layout.num_columns / kCodedRows) * kCodedRows;
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
  // Two passes with half the rows each keep more multiprocessors busy.
  const bool has_few_tiles =
      rows.rows() <= kPassRows && layout.num_tiles() <= 2 * device_->num_multiprocessors();
  WithType(y, [&]<class Out>(Out* out) {
    WithForm(layout, [&]<CodedKind kKind, ScaleForm kForm>() {
      const auto launch = [&]<int kTiles>() {
        using Block = BlockOf<kTiles>;
        const int64_t passes = (rows.rows() + kTiles * kTileRows - 1) / (kTiles * kTileRows);
        args.split = ChooseCodedSplit(layout, Block::kWarps, Block::MostSplit(kTiles), passes,
                                      NumBlocks(kTiles) * device_->num_multiprocessors());
        const int64_t tiles = Block::kWarps / args.split;  // of a block
        const dim3 grid(static_cast<unsigned>((layout.num_tiles() + tiles - 1) / tiles),
                        static_cast<unsigned>(passes));
        Launch(queue(), grid, Block::kThreads, CodedKernel<kKind, kForm, kTiles, Out>, out,
               static_cast<const Bf16*>(rows.Data<Bf16>()), part.codes(), layout, args);
      };
      if (rows.rows() <= kTileRows) return launch.template operator()<1>();
      if (rows.rows() <= 2 * kTileRows || has_few_tiles) return launch.template operator()<2>();
      launch.template operator()<kMostTiles>();
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
  const CodedLayout& layout = part.layout;
  const int32_t* const order = in_order ? part.order_data() : nullptr;
  constexpr int64_t kChunks = kThreads / kWarpSize * kExpandedChunks;
  const dim3 grid(static_cast<unsigned>((out.rows() + kCodedRows - 1) / kCodedRows),
                  static_cast<unsigned>((layout.num_chunks() + kChunks - 1) / kChunks));
  WithForm(layout, [&]<CodedKind kKind, ScaleForm kForm>() {
    Launch(queue(), grid, kThreads, ExpandKernel<kKind, kForm>, out.Data<Bf16>(), out.row_stride,
           part.codes(), layout, order, first / kCodedRows);
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
  WithForm(layout, [&]<CodedKind kKind, ScaleForm kForm>() {
    Launch(queue(), grid, kSkinnyThreads, CodedExpertKernel<kKind, kForm>, out.Data<Bf16>(),
           static_cast<const Bf16*>(x.Data<Bf16>()), experts, layout, args);
  });
}

}  // namespace tandem
