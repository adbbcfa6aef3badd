#include "kernels/cuda/libraries/cublaslt.h"

#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/log.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries/gemm_choice.h"
#include "kernels/cuda/libraries/shared_library.h"

namespace tandem {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // Hopper's kernels need it
constexpr int kCandidates = 8;                        // algorithms timed for a shape
constexpr int kTimedRuns = 3;
// What a kernel of ours gains in a step: it begins before the one before it has ended, and lets the
// next one begin.
constexpr float kOverlapMs = 0.002f;
constexpr size_t kEvictBytes = size_t{128} << 20;  // more than any second-level cache

// The functions we call, found by name.
struct Library {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;

  Status FindIn(const SharedLibrary& file) {
    RETURN_IF_ERROR(file.Find("cublasLtCreate", &create));
    RETURN_IF_ERROR(file.Find("cublasLtDestroy", &destroy));
    RETURN_IF_ERROR(file.Find("cublasLtMatmul", &matmul));
    RETURN_IF_ERROR(file.Find("cublasLtMatmulAlgoGetHeuristic", &get_heuristic));
    RETURN_IF_ERROR(file.Find("cublasLtMatmulDescCreate", &desc_create));
    RETURN_IF_ERROR(file.Find("cublasLtMatmulDescDestroy", &desc_destroy));
    RETURN_IF_ERROR(file.Find("cublasLtMatmulDescSetAttribute", &desc_set));
    RETURN_IF_ERROR(file.Find("cublasLtMatrixLayoutCreate", &layout_create));
    RETURN_IF_ERROR(file.Find("cublasLtMatrixLayoutDestroy", &layout_destroy));
    RETURN_IF_ERROR(file.Find("cublasLtMatmulPreferenceCreate", &preference_create));
    RETURN_IF_ERROR(file.Find("cublasLtMatmulPreferenceDestroy", &preference_destroy));
    RETURN_IF_ERROR(file.Find("cublasLtMatmulPreferenceSetAttribute", &preference_set));
    return OkStatus();
  }
};

StatusOr<Library> OpenLibrary() {
  ASSIGN_OR_RETURN(const SharedLibrary file,
                   SharedLibrary::Open("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)));
  Library library;
  RETURN_IF_ERROR(library.FindIn(file));
  return library;
}

#define CHECK_CUBLAS(expression)                                                                  \
  do {                                                                                            \
    const cublasStatus_t cublas_status = (expression);                                            \
    CHECK(cublas_status == CUBLAS_STATUS_SUCCESS) << #expression << ": status " << cublas_status; \
  } while (false)

cudaDataType_t TypeOf(DType dtype) {
  return dtype == DType::kI8 ? CUDA_R_8F_E4M3 : dtype == DType::kBf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// Scales of rows came with CUDA 12.9.
#if CUBLAS_VER_MAJOR > 12 || (CUBLAS_VER_MAJOR == 12 && CUBLAS_VER_MINOR >= 9)
#define TANDEM_HAS_ROW_SCALES 1
#else
#define TANDEM_HAS_ROW_SCALES 0
#endif

class OpenedCublasLt final : public CublasLt {
 public:
  OpenedCublasLt(const Library& library, cublasLtHandle_t handle, cudaStream_t stream,
                 void* workspace)
      : library_(library), handle_(handle), stream_(stream), workspace_(workspace) {
    CHECK_CUDA(cudaEventCreate(&begin_));
    CHECK_CUDA(cudaEventCreate(&end_));
  }
  ~OpenedCublasLt() override {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    library_.destroy(handle_);
    cudaFree(workspace_);
  }

  bool IsBetter(const GemmTask& task, const OwnProduct& own) override {
    const std::pair key(ShapeOf(task), own.rest != nullptr);
    auto found = is_better_.find(key);
    if (found == is_better_.end()) {
      Scratch scratch = MakeScratch(task);
      if (scratch.memory == nullptr) return false;
      found = is_better_.emplace(key, TimeBoth(task, own, scratch)).first;
      CHECK_CUDA(cudaFree(scratch.memory));
    }
    return found->second;
  }

  bool TryGemm(const GemmTask& task) override {
    if (task.in == DType::kI8 && !TANDEM_HAS_ROW_SCALES) return false;
    // cuBLASLt's matrices are column-major: out^T [n, m] = (W^T)^T [n, k] x^T [k, m].
    cublasLtMatmulDesc_t desc = nullptr;
    CHECK_CUBLAS(library_.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transpose = CUBLAS_OP_T, keep = CUBLAS_OP_N;
    CHECK_CUBLAS(
        library_.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose));
    CHECK_CUBLAS(library_.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSB, &keep, sizeof keep));
    if (task.in == DType::kI8) SetRowScales(task, desc);
    const auto layout = [&](DType dtype, int64_t rows, int64_t columns, int64_t stride) {
      cublasLtMatrixLayout_t result = nullptr;
      CHECK_CUBLAS(library_.layout_create(&result, TypeOf(dtype), static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), stride));
      return result;
    };
    const Call call = {.task = task,
                       .desc = desc,
                       .a = layout(task.in, task.k, task.n, task.weight_stride),
                       .b = layout(task.in, task.k, task.m, task.x_stride),
                       .out = layout(task.out_dtype, task.n, task.m, task.out_stride)};
    const bool is_done = TryRun(call);
    for (cublasLtMatrixLayout_t used : {call.a, call.b, call.out}) library_.layout_destroy(used);
    library_.desc_destroy(desc);
    return is_done;
  }

 private:
  struct Call {
    const GemmTask& task;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, out;
  };

  // Where products are timed: memory that evicts everything from the caches. A product that adds
  // to its output is timed on this memory.
  struct Scratch {
    void* memory = nullptr;
    void* out = nullptr;
  };

  void SetRowScales([[maybe_unused]] const GemmTask& task,
                    [[maybe_unused]] cublasLtMatmulDesc_t desc) {
#if TANDEM_HAS_ROW_SCALES
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      CHECK_CUBLAS(library_.desc_set(desc, attribute, &value, sizeof value));
    };
    const cublasLtMatmulMatrixScale_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, task.weight_scales);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, task.x_scales);
#endif
  }

  bool TryRun(const Call& call) {
    const GemmTask& task = call.task;
    const GemmShape shape = ShapeOf(task);
    auto found = algorithms_.find(shape);
    if (found == algorithms_.end()) found = algorithms_.emplace(shape, Choose(call)).first;
    if (!found->second) return false;
    if (Run(call, *found->second, task.out) == CUBLAS_STATUS_SUCCESS) return true;
    // An algorithm may refuse other sizes than the one it was timed with.
    for (const auto& candidate : Suggestions(call)) {
      if (Run(call, candidate.algo, task.out) == CUBLAS_STATUS_SUCCESS) return true;
    }
    return false;
  }

  cublasStatus_t Run(const Call& call, const cublasLtMatmulAlgo_t& algorithm, void* out) {
    const float one = 1, beta = call.task.accumulate ? 1 : 0;
    return library_.matmul(handle_, call.desc, &one, call.task.weight, call.a, call.task.x, call.b,
                           &beta, call.task.out, call.out, out, call.out, &algorithm, workspace_,
                           kWorkspaceBytes, stream_);
  }

  // The library's suggestions, its favourite first; none for types or strides it does not support.
  std::vector<cublasLtMatmulHeuristicResult_t> Suggestions(const Call& call) {
    cublasLtMatmulPreference_t preference = nullptr;
    CHECK_CUBLAS(library_.preference_create(&preference));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      CHECK_CUBLAS(library_.preference_set(preference, attribute, &value, sizeof value));
    };
    const uint32_t out_align = AlignOf(call.task.out);
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignOf(call.task.weight));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignOf(call.task.x));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out_align);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out_align);
    std::vector<cublasLtMatmulHeuristicResult_t> candidates(kCandidates);
    int count = 0;
    const cublasStatus_t status =
        library_.get_heuristic(handle_, call.desc, call.a, call.b, call.out, call.out, preference,
                               kCandidates, candidates.data(), &count);
    library_.preference_destroy(preference);
    candidates.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
    std::erase_if(candidates, [](const auto& c) { return c.state != CUBLAS_STATUS_SUCCESS; });
    return candidates;
  }

  // The fastest of the suggestions, each timed with its inputs in no cache, as a step finds its
  // weights.
  std::optional<cublasLtMatmulAlgo_t> Choose(const Call& call) {
    const std::vector<cublasLtMatmulHeuristicResult_t> candidates = Suggestions(call);
    if (candidates.empty()) return std::nullopt;
    const Scratch scratch = MakeScratch(call.task);
    if (scratch.memory == nullptr) return candidates[0].algo;
    const auto run = [&](size_t i) { return Run(call, candidates[i].algo, scratch.out); };
    const size_t best = FastestOf(
        candidates.size(), kTimedRuns, [&](size_t i) { return run(i) == CUBLAS_STATUS_SUCCESS; },
        [&](size_t i) { return TimeOf(scratch, [&] { CHECK_CUBLAS(run(i)); }); });
    CHECK_CUDA(cudaFree(scratch.memory));
    return candidates[best].algo;
  }

  // Whether the library's product is better than ours.
  bool TimeBoth(const GemmTask& task, const OwnProduct& own, const Scratch& scratch) {
    GemmTask theirs = task;
    theirs.out = scratch.out;
    if (!TryGemm(theirs)) return false;
    const auto run_theirs = [&] {
      CHECK(TryGemm(theirs));
      if (own.rest != nullptr) own.rest();
    };
    const auto run_ours = [&] { own.run(task.accumulate ? scratch.out : nullptr); };
    const auto run = [&](size_t i) { i == 0 ? run_ours() : run_theirs(); };
    const auto try_run = [&](size_t i) {
      run(i);
      return true;
    };
    const auto time_run = [&](size_t i) {
      return TimeOf(scratch, [&] { run(i); }) + (i == 0 ? 0 : kOverlapMs);
    };
    return FastestOf(2, kTimedRuns, try_run, time_run) == 1;
  }

  // Null in a capture, or without memory for it.
  Scratch MakeScratch(const GemmTask& task) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    CHECK_CUDA(cudaStreamIsCapturing(stream_, &capture));
    if (capture != cudaStreamCaptureStatusNone) return {};
    const size_t out_bytes =
        static_cast<size_t>(task.m * task.out_stride * SizeOf(task.out_dtype)) + kMaxAlign;
    Scratch scratch;
    if (cudaMalloc(&scratch.memory, std::max(out_bytes, kEvictBytes)) != cudaSuccess) {
      cudaGetLastError();  // cleared: nothing is timed
      return {};
    }
    scratch.out =
        task.accumulate ? static_cast<std::byte*>(scratch.memory) + AlignOf(task.out) : task.out;
    return scratch;
  }

  // Milliseconds. Overwrites the scratch memory first, so that the caches hold nothing else.
  template <class RunOnce>
  float TimeOf(const Scratch& scratch, RunOnce run_once) {
    CHECK_CUDA(cudaMemsetAsync(scratch.memory, 0, kEvictBytes, stream_));
    CHECK_CUDA(cudaEventRecord(begin_, stream_));
    run_once();
    CHECK_CUDA(cudaEventRecord(end_, stream_));
    CHECK_CUDA(cudaEventSynchronize(end_));
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
    return ms;
  }

  Library library_;
  cublasLtHandle_t handle_;
  cudaStream_t stream_;
  void* workspace_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::map<GemmShape, std::optional<cublasLtMatmulAlgo_t>> algorithms_;  // nullopt: unsupported
  std::map<std::pair<GemmShape, bool>, bool> is_better_;  // than ours, which has more to do or not
};

}  // namespace

std::unique_ptr<CublasLt> CublasLt::Open(void* stream) {
  const StatusOr<Library> opened = OpenLibrary();
  if (!opened.ok()) {
    LOG_WARNING << "cuBLASLt cannot be used (" << opened.status().message()
                << "): large matrix products will be slow";
    return nullptr;
  }
  const Library& library = *opened;
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = library.create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    LOG_WARNING << "cuBLASLt does not start (status " << status
                << "): large matrix products will be slow";
    return nullptr;
  }
  void* workspace = nullptr;
  if (cudaMalloc(&workspace, kWorkspaceBytes) != cudaSuccess) {
    cudaGetLastError();  // cleared: the start goes on without it
    LOG_WARNING << "no device memory for cuBLASLt's workspace of " << (kWorkspaceBytes >> 20)
                << " MiB: large matrix products will be slow";
    library.destroy(handle);
    return nullptr;
  }
  return std::make_unique<OpenedCublasLt>(library, handle, static_cast<cudaStream_t>(stream),
                                          workspace);
}

}  // namespace tandem
