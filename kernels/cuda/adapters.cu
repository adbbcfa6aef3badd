// The ops with adapters. A product with a pair is two kernels after that of the matrix: the sums of
// x with A, then what B makes of them, added to what the matrix made. Both take the rows of a tile
// that have the same adapter together, and rows of different adapters in different blocks: the grid
// has each place of the table, and a block whose rows name another one ends at once. Slots, places
// and pairs are read on the device, so a captured launch serves any adapters.
// A gate comes after both, so the product before it is stored, as it is for many rows anyway.

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_pair.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.cuh"

namespace tandem {
namespace {

constexpr int kRows = 8;   // of a tile
constexpr int kRanks = 4;  // of a block of SumsKernel, which share its reads of x
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;

// Which pair each row of an op gets, all on the device.
struct PairRows {
  const CudaPairEntry* entries;  // of place 0, from the first site on
  int64_t num_sites, site_stride;
  const int32_t* slots;
  const int32_t* tokens;  // of the rows; null: row t is token t
  const int32_t* begin;   // of each expert's rows; null: one matrix
  int num_experts;
  int64_t num_rows;
};

// The rows from `first` on that have the adapter of place z of the grid. Lane r knows row r.
struct Tile {
  int64_t first = 0;
  unsigned left = 0;  // a bit for each row that was not taken yet
  int expert = 0;

  __device__ explicit Tile(const PairRows& rows) : first(int64_t{blockIdx.x} * kRows) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int64_t row = first + lane;
    const bool is_row = lane < kRows && row < rows.num_rows;
    const int64_t token = is_row && rows.tokens != nullptr ? rows.tokens[row] : row;
    left = __ballot_sync(kAllLanes, is_row && rows.slots[token] == static_cast<int>(blockIdx.z));
    if (rows.begin == nullptr || !is_row) return;
    int end = rows.num_experts;  // rows.begin[expert] <= row < rows.begin[end]
    while (end - expert > 1) {
      const int middle = (expert + end) / 2;
      (rows.begin[middle] <= row ? expert : end) = middle;
    }
  }

  // Takes the rows of one expert.
  __device__ unsigned Take(const PairRows& rows, CudaPairEntry* pair) {
    int lowest = 0;
    while ((left >> lowest & 1) == 0) ++lowest;
    const int its_expert = __shfl_sync(kAllLanes, expert, lowest);
    const unsigned own = __ballot_sync(kAllLanes, expert == its_expert) & left;
    left &= ~own;
    *pair = rows.entries[blockIdx.z * rows.num_sites + its_expert * rows.site_stride];
    return own;
  }
};

// sums[row, r] = x[row, :] A[r, :]. A block has kRanks ranks; its warps share their depth.
template <bool kWide, class T>
__global__ void __launch_bounds__(kThreads)
    SumsKernel(float* sums, int64_t sums_stride, const T* x, int64_t x_stride, int64_t size,
               PairRows rows) {
  constexpr int kWidth = Wide<T>::kSize;
  WaitForPreviousKernel();
  __shared__ float partial[kWarps][kRows][kRanks];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int first_rank = static_cast<int>(blockIdx.y) * kRanks;
  Tile tile(rows);
  while (tile.left != 0) {
    CudaPairEntry pair;
    const unsigned own = tile.Take(rows, &pair);
    if (first_rank >= pair.rank) continue;
    const T* a[kRanks];
    float sum[kRows][kRanks];
#pragma unroll
    for (int i = 0; i < kRanks; ++i) {
      const int rank = first_rank + i < pair.rank ? first_rank + i : pair.rank - 1;
      a[i] = static_cast<const T*>(pair.a) + rank * pair.a_stride;
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum[r][i] = 0;
    }
    for (int64_t k = (int64_t{warp} * kWarpSize + lane) * kWidth; k < size;
         k += int64_t{kThreads} * kWidth) {
      Wide<T> numbers[kRanks];
#pragma unroll
      for (int i = 0; i < kRanks; ++i) numbers[i] = Widen<T>(LoadRaw(a[i] + k));
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if ((own >> r & 1) == 0) continue;
        const T* from = x + (tile.first + r) * x_stride + k;
        Wide<T> factors;
        if constexpr (kWide) {
          factors = Widen<T>(LoadRaw(from));
        } else {
#pragma unroll
          for (int j = 0; j < kWidth; ++j)
            factors.values[j] = k + j < size ? LoadFloat(from + j) : 0;
        }
#pragma unroll
        for (int i = 0; i < kRanks; ++i) {
#pragma unroll
          for (int j = 0; j < kWidth; ++j) {
            sum[r][i] += factors.values[j] * numbers[i].values[j];
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kRanks; ++i) {
        const float total = WarpSum(sum[r][i]);
        if (lane == 0) partial[warp][r][i] = total;
      }
    }
    __syncthreads();
    if (warp == 0) {
      const int r = lane / kRanks, i = lane % kRanks;
      static_assert(kRows * kRanks == kWarpSize);
      if ((own >> r & 1) != 0 && first_rank + i < pair.rank) {
        float total = 0;
        for (int w = 0; w < kWarps; ++w) total += partial[w][r][i];
        sums[(tile.first + r) * sums_stride + first_rank + i] = total;
      }
    }
    __syncthreads();
  }
}

// out[row, column] += sums[row, :] B[column, :]. A thread has one column.
template <class Out, class T>
__global__ void __launch_bounds__(kThreads)
    AddKernel(Out* out, int64_t out_stride, const float* sums, int64_t sums_stride, int64_t n,
              PairRows rows) {
  constexpr int kWidth = Wide<T>::kSize;
  WaitForPreviousKernel();
  const int64_t column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  Tile tile(rows);
  while (tile.left != 0) {
    CudaPairEntry pair;
    const unsigned own = tile.Take(rows, &pair);
    if (pair.rank == 0 || column >= n) continue;
    const T* b = static_cast<const T*>(pair.b) + column * pair.width;
    const int first = pair.first[column];
    const float* inputs = sums + tile.first * sums_stride + first;
    float total[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) total[r] = 0;
    for (int begin = 0; begin < pair.width; begin += kWidth) {
      const Wide<T> numbers = Widen<T>(LoadRaw(b + begin));
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if (first + begin + j >= pair.rank) break;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if ((own >> r & 1) == 0) continue;
          total[r] += inputs[r * sums_stride + begin + j] * numbers.values[j];
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if ((own >> r & 1) == 0) continue;
      Out* to = out + (tile.first + r) * out_stride + column;
      StoreFloat(to, LoadFloat(to) + total[r]);
    }
  }
}

// out[row, h] += scale A[id of the row, :] B[h, :]. One block per kThreads numbers of a row.
template <class T>
__global__ void AddToEmbeddingKernel(float* out, int64_t out_stride, const int32_t* ids,
                                     PairRows rows, int64_t num_ids, int64_t n, float scale) {
  WaitForPreviousKernel();
  const int64_t row = blockIdx.x, column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  const int slot = rows.slots[rows.tokens == nullptr ? row : rows.tokens[row]];
  const int64_t id = ids[row];
  // An id outside the table is the caller's mistake, but must not read outside it.
  if (slot < 0 || column >= n || id < 0 || id >= num_ids) return;
  const CudaPairEntry pair = rows.entries[slot * rows.num_sites];
  if (pair.rank == 0) return;
  const T* a = static_cast<const T*>(pair.a) + id * pair.a_stride;
  const T* b = static_cast<const T*>(pair.b) + column * pair.width;
  float sum = 0;
  for (int r = 0; r < pair.rank; ++r) sum += LoadFloat(a + r) * LoadFloat(b + r);
  out[row * out_stride + column] += scale * sum;
}

unsigned Blocks(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

PairRows RowsOf(const AdapterRows& adapters, int64_t num_rows, const ExpertPairs* experts) {
  const auto& table = static_cast<const CudaPairTable&>(*adapters.table);
  PairRows rows = {.entries = table.entries() + adapters.site,
                   .num_sites = table.num_sites(),
                   .site_stride = adapters.site_stride,
                   .slots = adapters.slots.Data<int32_t>(),
                   .tokens = adapters.rows.empty() ? nullptr : adapters.rows.Data<int32_t>(),
                   .begin = nullptr,
                   .num_experts = 1,
                   .num_rows = num_rows};
  if (experts == nullptr) return rows;
  rows.begin = experts->begin.Data<int32_t>();
  rows.num_experts = static_cast<int>(experts->chosen.rows());
  return rows;
}

}  // namespace

// y: what the matrices made.
void CudaOps::AddPairs(const Tensor& y, const Tensor& x, const AdapterRows& adapters,
                       const ExpertPairs* experts) {
  const auto& table = static_cast<const CudaPairTable&>(*adapters.table);
  const int64_t max_rank = table.max_rank(adapters.site), num_rows = x.rows();
  const Tensor sums = Scratch(&pair_sums_, DType::kF32, num_rows, max_rank);
  if (sums.empty()) return;
  const PairRows rows = RowsOf(adapters, num_rows, experts);
  const unsigned tiles = Blocks(num_rows, kRows);
  const auto places = static_cast<unsigned>(table.num_places());
  const int64_t size = x.shape[1];
  WithTypes(y, x, [&]<class Out, class T>(Out* out, const T* x_data) {
    LinearArgs shape = {};
    shape.x_stride = x.row_stride;
    shape.k = size;
    const auto kernel = HasWideRows(x_data, shape) ? SumsKernel<true, T> : SumsKernel<false, T>;
    Launch(queue(), dim3(tiles, Blocks(max_rank, kRanks), places), kThreads, kernel,
           sums.Data<float>(), sums.row_stride, x_data, x.row_stride, size, rows);
    Launch(queue(), dim3(tiles, Blocks(y.shape[1], kThreads), places), kThreads, AddKernel<Out, T>,
           out, y.row_stride, static_cast<const float*>(sums.data), sums.row_stride, y.shape[1],
           rows);
  });
}

void CudaOps::DoAdaptedLinear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                              const Tensor& bias, LinearEpilogue epilogue,
                              const AdapterRows& adapters) {
  if (x.rows() == 0) return;
  if (!weight.is_gated()) {
    Linear(out, x, weight, bias, epilogue);
    return AddPairs(out, x, adapters, nullptr);
  }
  const Tensor gate_up = Scratch(&ungated_, dtype_, x.rows(), weight.n());
  if (gate_up.empty()) return;
  MultiplyUngated(gate_up, x, static_cast<const CudaMatrix&>(weight), bias);
  AddPairs(gate_up, x, adapters, nullptr);
  Gate(out, gate_up, epilogue);
}

void CudaOps::DoAdaptedExpertLinear(const Tensor& out, const Tensor& x,
                                    const PackedExperts& experts, const ExpertPairs& pairs,
                                    LinearEpilogue epilogue, const AdapterRows& adapters) {
  if (x.rows() == 0) return;
  const PackedMatrix& first = experts.expert(0);
  if (!first.is_gated()) {
    ExpertLinear(out, x, experts, pairs, epilogue);
    return AddPairs(out, x, adapters, &pairs);
  }
  const Tensor gate_up = Scratch(&ungated_, dtype_, x.rows(), first.n());
  if (gate_up.empty()) return;
  MultiplyExpertsUngated(gate_up, x, experts, pairs);
  AddPairs(gate_up, x, adapters, &pairs);
  Gate(out, gate_up, epilogue);
}

void CudaOps::DoAddAdaptedEmbedding(const Tensor& out, const Tensor& ids,
                                    const AdapterRows& adapters, float scale) {
  if (ids.rows() == 0) return;
  const auto& table = static_cast<const CudaPairTable&>(*adapters.table);
  const PairRows rows = RowsOf(adapters, ids.rows(), nullptr);
  const int64_t num_ids = table.num_ids(adapters.site);
  const dim3 grid(static_cast<unsigned>(ids.rows()), Blocks(out.shape[1], kThreads));
  const auto kernel =
      dtype_ == DType::kBf16 ? AddToEmbeddingKernel<Bf16> : AddToEmbeddingKernel<float>;
  Launch(queue(), grid, kThreads, kernel, out.Data<float>(), out.row_stride, ids.Data<int32_t>(),
         rows, num_ids, out.shape[1], scale);
}

}  // namespace tandem
