// The products of a mixture's experts. If experts have few rows each, one launch multiplies for all
// of them: its grid has room for each expert that may have been chosen, and a block reads its
// expert and rows on the device, so the host need not know them and the launch can be captured. If
// they have many rows, the host waits for the numbers of rows and each expert's product is a
// Linear: a block here reads its weights again for every kMostRows rows.

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/expert_rows.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/skinny_linear.cuh"
#include "kernels/cuda/tensor_core_linear.cuh"

namespace tandem {
namespace {

constexpr int kMostTiles = 4;
constexpr int kMostRows = kMostTiles * kTileRows;

template <bool kGated>
__global__ void __launch_bounds__(kSkinnyThreads)
    ExpertTensorCoreKernel(Bf16* out, const Bf16* x, ExpertList experts, SkinnyArgs args) {
  __shared__ TileSums<kMostTiles, kGated> memory[kSkinnyWarps];
  WaitForPreviousKernel();
  ForEachRows<kMostRows, Bf16>(
      experts, [&](int64_t row, int64_t count, const Bf16* matrix, int32_t expert) {
        SkinnyArgs rows = args;
        rows.linear.m = count;
        if (rows.linear.bias != nullptr) rows.linear.bias += expert * rows.linear.n;
        Bf16* to = out + row * args.linear.out_stride;
        const Bf16* from = x + row * args.linear.x_stride;
        const auto multiply = [&]<int kTiles>() {
          auto* sums = reinterpret_cast<TileSums<kTiles, kGated>*>(memory);
          MultiplyTiles<kTiles, kGated, /*kWaits=*/false>(to, from, matrix, rows, sums);
        };
        if (count <= kTileRows) return multiply.template operator()<1>();
        if (count <= 2 * kTileRows) return multiply.template operator()<2>();
        multiply.template operator()<kMostTiles>();
      });
}

template <bool kGated, bool kWide, class T>
__global__ void __launch_bounds__(kSkinnyThreads)
    ExpertSkinnyKernel(T* out, const T* x, ExpertList experts, SkinnyArgs args) {
  WaitForPreviousKernel();
  ForEachRows<kPlainRows, T>(
      experts, [&](int64_t row, int64_t count, const T* matrix, int32_t expert) {
        SkinnyArgs rows = args;
        rows.linear.m = count;
        if (rows.linear.bias != nullptr) rows.linear.bias += expert * rows.linear.n;
        MultiplySkinnyRows<kPlainRows, kGated, /*kNormed=*/false, kWide, /*kWaits=*/false>(
            out + row * args.linear.out_stride, x + row * args.linear.x_stride, matrix, rows);
      });
}

class CudaExperts final : public PackedExperts {
 public:
  CudaExperts(std::vector<std::unique_ptr<PackedMatrix>> experts, OwnedTensor addresses)
      : PackedExperts(std::move(experts)), addresses_(std::move(addresses)) {}
  const CudaMatrix& matrix(int64_t e) const { return static_cast<const CudaMatrix&>(expert(e)); }
  const void* const* addresses() const {
    return static_cast<const void* const*>(addresses_.view().data);
  }

 private:
  OwnedTensor addresses_;  // [E] the matrices' addresses, 64 bits each
};

// num_warps: of one expert, each with some columns and 1 / args.split of their depth. num_chosen:
// most experts that have rows.
template <class Kernel, class T>
void LaunchExperts(OverlappingStream stream, Kernel* kernel, T* out, const T* x,
                   const ExpertList& experts, const SkinnyArgs& args, int64_t num_warps,
                   int64_t num_chosen) {
  const int64_t warps_per_block = kSkinnyWarps / args.split;
  const dim3 grid(static_cast<unsigned>((num_warps + warps_per_block - 1) / warps_per_block),
                  static_cast<unsigned>(num_chosen));
  Launch(stream, grid, kSkinnyThreads, kernel, out, x, experts, args);
}

}  // namespace

namespace {

bool HaveOneLayout(const std::vector<std::unique_ptr<PackedMatrix>>& experts) {
  const auto parts = [](const std::unique_ptr<PackedMatrix>& expert) {
    return std::span(static_cast<const CudaMatrix&>(*expert).parts());
  };
  return !experts.empty() && parts(experts[0]).size() == 1 &&
         std::all_of(experts.begin(), experts.end(), [&](const auto& expert) {
           return parts(expert).size() == 1 && parts(expert)[0].order.view().empty() &&
                  parts(expert)[0].layout == parts(experts[0])[0].layout;
         });
}

}  // namespace

StatusOr<std::unique_ptr<PackedExperts>> CudaBackend::PackExperts(
    std::vector<std::unique_ptr<PackedMatrix>> experts) {
  // One kernel reads all, so they have one form.
  const bool is_coded = HaveOneLayout(experts);
  std::vector<const void*> matrices;
  for (auto& expert : experts) {
    const auto& matrix = static_cast<const CudaMatrix&>(*expert);
    if (is_coded) {
      matrices.push_back(matrix.parts()[0].codes());
      continue;
    }
    if (matrix.is_coded()) {
      ASSIGN_OR_RETURN(expert, ops_.ToNumbers(matrix));
    }
    matrices.push_back(static_cast<const CudaMatrix&>(*expert).data());
  }
  constexpr int64_t kWords = sizeof(void*) / sizeof(int32_t);
  const auto count = static_cast<int64_t>(experts.size());
  ASSIGN_OR_RETURN(OwnedTensor addresses, device_.Allocate(DType::kI32, {count, kWords}));
  device_.CopyIn(addresses, Tensor(matrices.data(), DType::kI32, {count, kWords}));
  return std::unique_ptr<PackedExperts>(
      std::make_unique<CudaExperts>(std::move(experts), std::move(addresses)));
}

bool CudaOps::IsForExpertKernels(int64_t num_pairs, int64_t num_experts) const {
  return device_->is_capturing() || num_pairs <= kMostRows * num_experts;
}

void CudaOps::DoExpertLinear(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                             const ExpertPairs& pairs, LinearEpilogue epilogue,
                             const Tensor& bias) {
  if (x.rows() == 0) return;
  if (IsForExpertKernels(x.rows(), experts.size())) {
    return MultiplyExperts(out, x, experts, pairs, epilogue, bias);
  }
  const int32_t* begin = AwaitExpertBegins();
  for (int64_t e = 0; e < experts.size(); ++e) {
    const int64_t count = begin[e + 1] - begin[e];
    Linear(out.Rows(begin[e], count), x.Rows(begin[e], count), experts.expert(e),
           BiasOfExpert(bias, e), epilogue);
  }
}

void CudaOps::MultiplyExpertsUngated(const Tensor& y, const Tensor& x, const PackedExperts& experts,
                                     const ExpertPairs& pairs) {
  if (IsForExpertKernels(x.rows(), experts.size())) {
    return MultiplyExperts(y, x, experts, pairs, LinearEpilogue::kStore, {});
  }
  const int32_t* begin = AwaitExpertBegins();
  for (int64_t e = 0; e < experts.size(); ++e) {
    const int64_t count = begin[e + 1] - begin[e];
    if (count == 0) continue;
    MultiplyUngated(y.Rows(begin[e], count), x.Rows(begin[e], count),
                    static_cast<const CudaMatrix&>(experts.expert(e)), {});
  }
}

const int32_t* CudaOps::AwaitExpertBegins() {
  device_->WaitFor(expert_begin_copied_);
  return expert_begin_.view().Data<int32_t>();
}

void CudaOps::MultiplyExperts(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                              const ExpertPairs& pairs, LinearEpilogue epilogue,
                              const Tensor& bias) {
  const auto& packed = static_cast<const CudaExperts&>(experts);
  const CudaMatrix& shape = packed.matrix(0);
  const bool is_gated = epilogue != LinearEpilogue::kStore;
  const int64_t columns = is_gated ? shape.n() / 2 : shape.n();
  const int64_t num_chosen = std::min(x.rows(), experts.size());
  const ExpertList list = {.chosen = pairs.chosen.Data<int32_t>(),
                           .begin = pairs.begin.Data<int32_t>(),
                           .matrices = packed.addresses()};
  if (shape.is_coded()) {
    const Tensor y = is_gated ? Scratch(&ungated_, dtype_, x.rows(), shape.n()) : out;
    if (y.empty()) return;
    MultiplyCodedExperts(y, x, shape.parts()[0], list, num_chosen, bias);
    if (epilogue == LinearEpilogue::kSiluAndMul) SiluAndMul(out, y);
    if (epilogue == LinearEpilogue::kGeluAndMul) GeluAndMul(out, y);
    return;
  }
  SkinnyArgs args = {.linear = {.x_stride = x.row_stride,
                                .weight_stride = shape.stride(),
                                .out_stride = out.row_stride,
                                .m = 0,  // set per expert
                                .n = shape.n(),
                                .k = shape.k(),
                                .bias = bias.empty() ? nullptr : bias.Data<float>(),
                                .accumulate = false},
                     .is_gelu = epilogue == LinearEpilogue::kGeluAndMul};
  const auto run = [&]<class T>(T* out_data) {
    const auto* x_data = static_cast<const T*>(x.data);
    const bool is_wide = HasWideRows<T>(x_data, args.linear);
    const auto launch = [&](auto* kernel, int64_t columns_per_warp, int64_t least_depth) {
      const int64_t num_warps = (columns + columns_per_warp - 1) / columns_per_warp;
      args.split = ChooseSplit(num_warps * num_chosen, shape.k(), least_depth,
                               device_->num_multiprocessors());
      LaunchExperts(queue(), kernel, out_data, x_data, list, args, num_warps, num_chosen);
    };
    if constexpr (std::is_same_v<T, Bf16>) {
      if (is_wide) {
        return launch(is_gated ? ExpertTensorCoreKernel<true> : ExpertTensorCoreKernel<false>,
                      kTileColumns, 2 * kTileDepth);
      }
    }
    const auto kernel =
        is_wide
            ? (is_gated ? ExpertSkinnyKernel<true, true, T> : ExpertSkinnyKernel<false, true, T>)
            : (is_gated ? ExpertSkinnyKernel<true, false, T> : ExpertSkinnyKernel<false, false, T>);
    launch(kernel, 1, LeastDepth<T>());
  };
  if (dtype_ == DType::kBf16) return run(out.Data<Bf16>());
  run(out.Data<float>());
}

}  // namespace tandem
