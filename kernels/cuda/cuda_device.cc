#include "kernels/cuda/cuda_device.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/device_memory.h"

namespace tandem {

Status CudaDevice::Open(int device) {
  RETURN_IF_ERROR(
      CudaStatus(cudaSetDevice(device), "choosing CUDA device " + std::to_string(device)));
  cudaDeviceProp properties;
  RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, device),
                             "reading the properties of the device"));
  name_ = properties.name;
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
  return OkStatus();
}

CudaDevice::~CudaDevice() {
  for (cudaEvent_t mark : marks_) {
    if (mark != nullptr) cudaEventDestroy(mark);
  }
  for (cudaEvent_t point : time_points_) {
    if (point != nullptr) cudaEventDestroy(point);
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

DeviceMemory CudaDevice::memory() const {
  size_t free = 0, total = 0;
  CHECK_CUDA(cudaMemGetInfo(&free, &total));
  return {static_cast<int64_t>(total), static_cast<int64_t>(free)};
}

StatusOr<OwnedTensor> CudaDevice::Allocate(DType dtype, std::initializer_list<int64_t> shape) {
  return AllocateDevice(dtype, {shape.begin(), shape.size()}, stream_);
}

StatusOr<OwnedTensor> CudaDevice::Upload(const Tensor& host, DType dtype) {
  const std::span<const int64_t> shape(host.shape.data(), static_cast<size_t>(host.rank));
  ASSIGN_OR_RETURN(OwnedTensor result, AllocateDevice(dtype, shape, stream_));
  std::vector<std::byte> converted(static_cast<size_t>(result.view().NumBytes()));
  Tensor view = result.view();
  view.data = converted.data();
  ConvertTensor(view, host);
  CopyIn(result, view);
  return result;
}

void CudaDevice::CopyIn(const Tensor& out, const Tensor& host) {
  CopyRows(out, host, stream_);
  CHECK_CUDA(cudaStreamSynchronize(stream_));  // `host` may go away
}

void CudaDevice::CopyOut(const Tensor& host, const Tensor& x) {
  CopyRows(host, x, stream_);
  CHECK_CUDA(cudaStreamSynchronize(stream_));
}

StatusOr<OwnedTensor> CudaDevice::AllocateStaging(DType dtype,
                                                  std::initializer_list<int64_t> shape) {
  return AllocatePinned(dtype, {shape.begin(), shape.size()});
}

void CudaDevice::StartCopyIn(const Tensor& out, const Tensor& staging) {
  CopyRows(out, staging, stream_);
}

void CudaDevice::StartCopyOut(const Tensor& staging, const Tensor& x) {
  CopyRows(staging, x, stream_);
}

int64_t CudaDevice::SetMark() {
  CHECK_CUDA(cudaEventRecord(marks_[static_cast<size_t>(++last_mark_ % kNumMarks)], stream_));
  return last_mark_;
}

void CudaDevice::WaitFor(int64_t mark) {
  CHECK_CUDA(cudaEventSynchronize(marks_[static_cast<size_t>(mark % kNumMarks)]));
}

int64_t CudaDevice::SetTimePoint() {
  const auto place = static_cast<size_t>(++last_time_point_ % kNumTimePoints);
  CHECK_CUDA(cudaEventRecord(time_points_[place], stream_));
  return last_time_point_;
}

double CudaDevice::SecondsBetween(int64_t from, int64_t to) {
  CHECK(from > last_time_point_ - kNumTimePoints && to <= last_time_point_) << from << " " << to;
  const cudaEvent_t begin = time_points_[static_cast<size_t>(from % kNumTimePoints)];
  const cudaEvent_t end = time_points_[static_cast<size_t>(to % kNumTimePoints)];
  float ms = 0;
  CHECK_CUDA(cudaEventSynchronize(end));
  CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
  return static_cast<double>(ms) / 1e3;
}

void CudaDevice::BeginCapture() {
  CHECK(!is_capturing_);
  CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  is_capturing_ = has_captured_ = true;
}

StatusOr<std::unique_ptr<CapturedOps>> CudaDevice::EndCapture() {
  CHECK(is_capturing_);
  is_capturing_ = false;
  cudaGraph_t graph = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaStreamEndCapture(stream_, &graph), "capturing a CUDA graph"));
  cudaGraphExec_t exec = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  RETURN_IF_ERROR(CudaStatus(error, "making a CUDA graph"));
  auto ops = std::make_unique<CudaCapturedOps>(exec);
  // Otherwise the first replay would upload it.
  RETURN_IF_ERROR(CudaStatus(cudaGraphUpload(exec, stream_), "uploading a CUDA graph"));
  return std::unique_ptr<CapturedOps>(std::move(ops));
}

void CudaDevice::Replay(const CapturedOps& ops) {
  CHECK_CUDA(cudaGraphLaunch(static_cast<const CudaCapturedOps&>(ops).graph(), stream_));
}

void CudaDevice::Fail(const Status& status) { status_ = status; }

}  // namespace tandem
