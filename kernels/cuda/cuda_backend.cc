#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sampling/sampler.h"

namespace tandem {
namespace {

constexpr int64_t kStagingBytes = int64_t{32} << 20;
constexpr int64_t kRowAlignBytes = 16;

}  // namespace

bool HasCudaDevice() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options) {
  return CudaBackend::Create(options);
}

StatusOr<std::unique_ptr<Backend>> CudaBackend::Create(const CudaBackendOptions& options) {
  if (options.dtype != DType::kBf16 && options.dtype != DType::kF32) {
    return InvalidArgumentError("the cuda backend computes in bfloat16 or float32, not " +
                                std::string(DTypeName(options.dtype)));
  }
  int count = 0;
  RETURN_IF_ERROR(CudaStatus(cudaGetDeviceCount(&count), "there is no usable CUDA device"));
  if (count == 0) return UnavailableError("there is no CUDA device");
  std::unique_ptr<CudaBackend> backend(new CudaBackend(options));
  RETURN_IF_ERROR(backend->Init(0));
  return std::unique_ptr<Backend>(std::move(backend));
}

CudaBackend::CudaBackend(const CudaBackendOptions& options)
    : dtype_(options.dtype),
      pool_(options.num_threads == 0 ? NumUsableCpus() : options.num_threads),
      attention_(options.attention),
      random_(options.random) {}

Status CudaBackend::Init(int device) {
  RETURN_IF_ERROR(
      CudaStatus(cudaSetDevice(device), "choosing CUDA device " + std::to_string(device)));
  cudaDeviceProp properties;
  RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&properties, device), "asking what the device is"));
  device_name_ = properties.name;
  num_multiprocessors_ = std::max(1, properties.multiProcessorCount);
  can_overlap_ = properties.major >= 9;
  RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"));
  for (cudaEvent_t& mark : marks_) {
    RETURN_IF_ERROR(
        CudaStatus(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming), "making an event"));
  }
  for (cudaEvent_t& point : time_points_) {
    RETURN_IF_ERROR(
        CudaStatus(cudaEventCreateWithFlags(&point, cudaEventDefault), "making an event"));
  }
  const int64_t bytes = kStagingBytes / SizeOf(DType::kI32);
  ASSIGN_OR_RETURN(staging_, AllocatePinned(DType::kI32, {&bytes, 1}));
  const int64_t num_begins = kMaxCudaExperts + 1;
  ASSIGN_OR_RETURN(expert_begin_, AllocatePinned(DType::kI32, {&num_begins, 1}));
  cublaslt_ = CublasLt::Open(stream_);
  return OkStatus();
}

CudaBackend::~CudaBackend() {
  cublaslt_.reset();
  for (cudaEvent_t mark : marks_) {
    if (mark != nullptr) cudaEventDestroy(mark);
  }
  for (cudaEvent_t point : time_points_) {
    if (point != nullptr) cudaEventDestroy(point);
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

std::string CudaBackend::description() const {
  return "cuda " + device_name_ + " " + std::string(DTypeName(dtype_)) +
         (cublaslt_ == nullptr ? ", without cuBLASLt" : "");
}

DeviceMemory CudaBackend::device_memory() const {
  size_t free = 0, total = 0;
  CHECK_CUDA(cudaMemGetInfo(&free, &total));
  return {static_cast<int64_t>(total), static_cast<int64_t>(free)};
}

StatusOr<OwnedTensor> CudaBackend::Allocate(DType dtype, std::initializer_list<int64_t> shape) {
  return AllocateDevice(dtype, {shape.begin(), shape.size()}, stream_);
}

StatusOr<OwnedTensor> CudaBackend::Upload(const Tensor& host, DType dtype) {
  const std::span<const int64_t> shape(host.shape.data(), static_cast<size_t>(host.rank));
  ASSIGN_OR_RETURN(OwnedTensor result, AllocateDevice(dtype, shape, stream_));
  std::vector<std::byte> converted(static_cast<size_t>(result.view().NumBytes()));
  Tensor view = result.view();
  view.data = converted.data();
  ConvertTensor(view, host);
  CopyIn(result, view);
  return result;
}

void CudaBackend::CopyIn(const Tensor& out, const Tensor& host) {
  CopyRows(out, host, stream_);
  CHECK_CUDA(cudaStreamSynchronize(stream_));  // `host` may go away
}

void CudaBackend::CopyOut(const Tensor& host, const Tensor& x) {
  CopyRows(host, x, stream_);
  CHECK_CUDA(cudaStreamSynchronize(stream_));
}

StatusOr<OwnedTensor> CudaBackend::AllocateStaging(DType dtype,
                                                   std::initializer_list<int64_t> shape) {
  return AllocatePinned(dtype, {shape.begin(), shape.size()});
}

void CudaBackend::StartCopyIn(const Tensor& out, const Tensor& staging) {
  CopyRows(out, staging, stream_);
}

void CudaBackend::StartCopyOut(const Tensor& staging, const Tensor& x) {
  CopyRows(staging, x, stream_);
}

int64_t CudaBackend::SetMark() {
  CHECK_CUDA(cudaEventRecord(marks_[static_cast<size_t>(++last_mark_ % kNumMarks)], stream_));
  return last_mark_;
}

void CudaBackend::WaitFor(int64_t mark) {
  CHECK_CUDA(cudaEventSynchronize(marks_[static_cast<size_t>(mark % kNumMarks)]));
}

int64_t CudaBackend::SetTimePoint() {
  const auto place = static_cast<size_t>(++last_time_point_ % kNumTimePoints);
  CHECK_CUDA(cudaEventRecord(time_points_[place], stream_));
  return last_time_point_;
}

double CudaBackend::SecondsBetween(int64_t from, int64_t to) {
  CHECK(from > last_time_point_ - kNumTimePoints && to <= last_time_point_) << from << " " << to;
  const cudaEvent_t begin = time_points_[static_cast<size_t>(from % kNumTimePoints)];
  const cudaEvent_t end = time_points_[static_cast<size_t>(to % kNumTimePoints)];
  float ms = 0;
  CHECK_CUDA(cudaEventSynchronize(end));
  CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
  return static_cast<double>(ms) / 1e3;
}

void CudaBackend::BeginCapture() {
  CHECK(!is_capturing_);
  CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  is_capturing_ = has_captured_ = true;
}

StatusOr<std::unique_ptr<CapturedOps>> CudaBackend::EndCapture() {
  CHECK(is_capturing_);
  is_capturing_ = false;
  cudaGraph_t graph = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaStreamEndCapture(stream_, &graph), "capturing a CUDA graph"));
  cudaGraphExec_t exec = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  RETURN_IF_ERROR(CudaStatus(error, "making a CUDA graph"));
  auto ops = std::make_unique<CudaCapturedOps>(exec);
  // Else the first replay would do it.
  RETURN_IF_ERROR(CudaStatus(cudaGraphUpload(exec, stream_), "uploading a CUDA graph"));
  return std::unique_ptr<CapturedOps>(std::move(ops));
}

void CudaBackend::Replay(const CapturedOps& ops) {
  CHECK_CUDA(cudaGraphLaunch(static_cast<const CudaCapturedOps&>(ops).graph(), stream_));
}

StatusOr<std::unique_ptr<PackedMatrix>> CudaBackend::Pack(std::span<const Tensor> row_blocks,
                                                          WeightFormat format) {
  RETURN_IF_ERROR(CheckPack(row_blocks, format));
  return PackRows(row_blocks, format, /*is_gated=*/false);
}

StatusOr<std::unique_ptr<PackedMatrix>> CudaBackend::PackGated(std::span<const Tensor> row_blocks,
                                                               WeightFormat format) {
  RETURN_IF_ERROR(CheckPackGated(row_blocks, format));
  return PackRows(row_blocks, format, /*is_gated=*/true);
}

StatusOr<std::unique_ptr<PackedMatrix>> CudaBackend::PackRows(std::span<const Tensor> row_blocks,
                                                              WeightFormat format, bool is_gated) {
  if (format != WeightFormat::kCompute) {
    return InvalidArgumentError(
        "the cuda backend has no integer weights: serve without --quantization");
  }
  const int64_t k = row_blocks[0].shape[1];
  const int64_t align = kRowAlignBytes / SizeOf(dtype_);
  int64_t n = 0;
  for (const Tensor& block : row_blocks) n += block.rows();
  const int64_t shape[] = {n, (k + align - 1) / align * align};
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateDevice(dtype_, shape, stream_));
  if (random_) {
    FillRandom(memory, k);
    return std::unique_ptr<PackedMatrix>(
        std::make_unique<CudaMatrix>(k, is_gated, std::move(memory)));
  }

  const int64_t row_bytes = k * SizeOf(dtype_);
  const int64_t half_bytes = kStagingBytes / 2;
  const int64_t rows_at_once = half_bytes / row_bytes;
  if (rows_at_once == 0) {
    return InvalidArgumentError("a matrix of " + std::to_string(k) + " columns is too wide");
  }
  int64_t row = 0;
  for (const Tensor& block : row_blocks) {
    for (int64_t begin = 0; begin < block.rows(); begin += rows_at_once) {
      const int64_t count = std::min(rows_at_once, block.rows() - begin);
      // One half is filled while the other is on its way.
      staging_half_ = 1 - staging_half_;
      auto* bytes = static_cast<std::byte*>(staging_.view().data) +
                    static_cast<int64_t>(staging_half_) * half_bytes;
      WaitFor(staging_sent_[staging_half_]);
      const Tensor staged(bytes, dtype_, {count, k});
      ConvertTensor(staged, block.Rows(begin, count));
      CopyRows(memory.view().Rows(row, count).Columns(0, k), staged, stream_);
      staging_sent_[staging_half_] = SetMark();
      row += count;
    }
  }
  return std::unique_ptr<PackedMatrix>(
      std::make_unique<CudaMatrix>(k, is_gated, std::move(memory)));
}

int64_t CudaBackend::KvBytesPerBlock(const KvCacheSpec& spec) const {
  return int64_t{2} * spec.num_layers * spec.num_kv_heads * spec.block_size * spec.head_dim *
         SizeOf(dtype_);
}

StatusOr<std::unique_ptr<KvCache>> CudaBackend::AllocateKvCache(const KvCacheSpec& spec) {
  if (spec.format != KvFormat::kCompute) {
    return InvalidArgumentError(
        "the cuda backend keeps KV in its compute type: serve without "
        "--kv-cache-dtype");
  }
  if (spec.block_size <= 0 || spec.head_dim <= 0) {
    return InvalidArgumentError("block size " + std::to_string(spec.block_size) + " and head_dim " +
                                std::to_string(spec.head_dim) + " must be at least 1");
  }
  const int64_t elements = KvBytesPerBlock(spec) / SizeOf(dtype_) * spec.num_blocks;
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateDevice(dtype_, {&elements, 1}, stream_));
  return std::make_unique<KvCache>(spec, std::move(memory));
}

StatusOr<std::unique_ptr<DeviceSampler>> CudaBackend::MakeSampler(
    const DeviceSamplerLimits& limits) {
  return CudaSampler::Create(limits, stream_);
}

Tensor CudaBackend::Scratch(OwnedTensor* memory, int64_t rows, int64_t columns) {
  const int64_t size = rows * columns;
  if (memory->view().NumElements() < size) {
    CHECK(!is_capturing_) << "scratch of " << size << " numbers was not there before the capture";
    if (has_captured_) outgrown_.push_back(std::move(*memory));
    *memory = {};
    StatusOr<OwnedTensor> grown = AllocateDevice(dtype_, {&size, 1}, stream_);
    if (!grown.ok()) {
      status_ = grown.status();
      return {};
    }
    *memory = *std::move(grown);
  }
  return Tensor(memory->view().data, dtype_, {rows, columns});
}

void CudaBackend::ParallelFor(int64_t num_items, int64_t grain, RangeFunction function) {
  pool_.Run(num_items, grain, [&](int64_t begin, int64_t end, int) { function(begin, end); });
}

}  // namespace tandem
