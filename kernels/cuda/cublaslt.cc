#include "kernels/cuda/cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/log.h"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what Hopper's kernels ask for
constexpr int kCandidates = 8;                        // algorithms that are timed for a shape
constexpr int kTimedRuns = 3;

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

  // False: a name is missing.
  bool Find(void* handle) {
    const auto find = [&](const char* name, auto* function) {
      *function =
          reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(handle, name));
      return *function != nullptr;
    };
    return find("cublasLtCreate", &create) && find("cublasLtDestroy", &destroy) &&
           find("cublasLtMatmul", &matmul) &&
           find("cublasLtMatmulAlgoGetHeuristic", &get_heuristic) &&
           find("cublasLtMatmulDescCreate", &desc_create) &&
           find("cublasLtMatmulDescDestroy", &desc_destroy) &&
           find("cublasLtMatmulDescSetAttribute", &desc_set) &&
           find("cublasLtMatrixLayoutCreate", &layout_create) &&
           find("cublasLtMatrixLayoutDestroy", &layout_destroy) &&
           find("cublasLtMatmulPreferenceCreate", &preference_create) &&
           find("cublasLtMatmulPreferenceDestroy", &preference_destroy) &&
           find("cublasLtMatmulPreferenceSetAttribute", &preference_set);
  }
};

#define CHECK_CUBLAS(expression)                                                                  \
  do {                                                                                            \
    const cublasStatus_t cublas_status = (expression);                                            \
    CHECK(cublas_status == CUBLAS_STATUS_SUCCESS) << #expression << ": status " << cublas_status; \
  } while (false)

cudaDataType_t TypeOf(DType dtype) { return dtype == DType::kBf16 ? CUDA_R_16BF : CUDA_R_32F; }

// Rows are timed together with the next power of two: a step's batch varies from step to step.
int64_t Bucket(int64_t m) {
  int64_t bucket = 32;
  while (bucket < m) bucket *= 2;
  return bucket;
}

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

  void Gemm(const GemmTask& task) override {
    // cuBLASLt's matrices are column-major: out^T [n, m] = (W^T)^T [n, k] x^T [k, m].
    cublasLtMatmulDesc_t desc = nullptr;
    CHECK_CUBLAS(library_.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transpose = CUBLAS_OP_T, keep = CUBLAS_OP_N;
    CHECK_CUBLAS(
        library_.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose));
    CHECK_CUBLAS(library_.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSB, &keep, sizeof keep));
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
    const Shape shape = {Bucket(task.m), task.n, task.k, task.out_dtype, task.accumulate};
    auto found = algorithms_.find(shape);
    if (found == algorithms_.end()) found = algorithms_.emplace(shape, Choose(call)).first;
    // An algorithm may refuse other sizes than the one it was timed with.
    if (Run(call, found->second) != CUBLAS_STATUS_SUCCESS) {
      CHECK_CUBLAS(Run(call, Suggestions(call)[0].algo));
    }
    for (cublasLtMatrixLayout_t used : {call.a, call.b, call.out}) library_.layout_destroy(used);
    library_.desc_destroy(desc);
  }

 private:
  using Shape = std::tuple<int64_t, int64_t, int64_t, DType, bool>;  // bucket of m, n, k, ...
  struct Call {
    const GemmTask& task;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, out;
  };

  cublasStatus_t Run(const Call& call, const cublasLtMatmulAlgo_t& algorithm) {
    const float one = 1, beta = call.task.accumulate ? 1 : 0;
    return library_.matmul(handle_, call.desc, &one, call.task.weight, call.a, call.task.x, call.b,
                           &beta, call.task.out, call.out, call.task.out, call.out, &algorithm,
                           workspace_, kWorkspaceBytes, stream_);
  }

  // The library's, the best it knows first; at least one.
  std::vector<cublasLtMatmulHeuristicResult_t> Suggestions(const Call& call) {
    cublasLtMatmulPreference_t preference = nullptr;
    CHECK_CUBLAS(library_.preference_create(&preference));
    CHECK_CUBLAS(library_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &kWorkspaceBytes, sizeof kWorkspaceBytes));
    std::vector<cublasLtMatmulHeuristicResult_t> candidates(kCandidates);
    int count = 0;
    CHECK_CUBLAS(library_.get_heuristic(handle_, call.desc, call.a, call.b, call.out, call.out,
                                        preference, kCandidates, candidates.data(), &count));
    library_.preference_destroy(preference);
    CHECK_GT(count, 0) << "cuBLASLt knows no way to multiply " << call.task.m << "x" << call.task.k
                       << " by " << call.task.n << "x" << call.task.k;
    candidates.resize(static_cast<size_t>(count));
    return candidates;
  }

  // The fastest of the suggestions, timed where that does no harm: a product that adds to its
  // output, or a stream that is being captured, takes the first.
  cublasLtMatmulAlgo_t Choose(const Call& call) {
    const std::vector<cublasLtMatmulHeuristicResult_t> candidates = Suggestions(call);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    CHECK_CUDA(cudaStreamIsCapturing(stream_, &capture));
    if (call.task.accumulate || capture != cudaStreamCaptureStatusNone) return candidates[0].algo;
    size_t best = 0;
    float best_ms = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (Run(call, candidates[i].algo) != CUBLAS_STATUS_SUCCESS) continue;  // warms up as well
      CHECK_CUDA(cudaEventRecord(begin_, stream_));
      for (int run = 0; run < kTimedRuns; ++run) CHECK_CUBLAS(Run(call, candidates[i].algo));
      CHECK_CUDA(cudaEventRecord(end_, stream_));
      CHECK_CUDA(cudaEventSynchronize(end_));
      float ms = 0;
      CHECK_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
      if (best_ms == 0 || ms < best_ms) {
        best = i;
        best_ms = ms;
      }
    }
    return candidates[best].algo;
  }

  Library library_;
  cublasLtHandle_t handle_;
  cudaStream_t stream_;
  void* workspace_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::map<Shape, cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace

std::unique_ptr<CublasLt> CublasLt::Open(void* stream) {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* file = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  Library library;
  if (file == nullptr || !library.Find(file)) {
    LOG_WARNING << name << " cannot be used (" << (file == nullptr ? dlerror() : "too old")
                << "): large matrix products will be slow";
    return nullptr;
  }
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = library.create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    LOG_WARNING << "cuBLASLt does not start (status " << status
                << "): large matrix products will be slow";
    return nullptr;
  }
  void* workspace = nullptr;
  if (cudaMalloc(&workspace, kWorkspaceBytes) != cudaSuccess) {
    library.destroy(handle);
    return nullptr;
  }
  return std::make_unique<OpenedCublasLt>(library, handle, static_cast<cudaStream_t>(stream),
                                          workspace);
}

}  // namespace tandem
