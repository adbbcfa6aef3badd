#pragma once

// One NVIDIA GPU and the stream that everything runs in, in order: an op or a started copy returns
// before it is done, and CopyIn and CopyOut wait.
// Thread: engine loop. Owns: the stream and its events.

#include <cuda_runtime.h>

#include <array>
#include <string>

#include "kernels/cuda/launch.h"
#include "kernels/device.h"

namespace tandem {

class CudaCapturedOps final : public CapturedOps {
 public:
  explicit CudaCapturedOps(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaCapturedOps() override { cudaGraphExecDestroy(graph_); }
  cudaGraphExec_t graph() const { return graph_; }

 private:
  cudaGraphExec_t graph_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice() = default;
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  // Call first. UNAVAILABLE: no driver, no such device.
  Status Open(int device);

  bool memory_is_host() const override { return false; }
  DeviceMemory memory() const override;
  Status status() const override { return status_; }
  StatusOr<OwnedTensor> Allocate(DType dtype, std::initializer_list<int64_t> shape) override;
  StatusOr<OwnedTensor> Upload(const Tensor& host, DType dtype) override;
  void CopyIn(const Tensor& out, const Tensor& host) override;
  void CopyOut(const Tensor& host, const Tensor& x) override;
  StatusOr<OwnedTensor> AllocateStaging(DType dtype, std::initializer_list<int64_t> shape) override;
  void StartCopyIn(const Tensor& out, const Tensor& staging) override;
  void StartCopyOut(const Tensor& staging, const Tensor& x) override;
  int64_t SetMark() override;
  void WaitFor(int64_t mark) override;
  int64_t SetTimePoint() override;
  double SecondsBetween(int64_t from, int64_t to) override;
  bool can_capture() const override { return true; }
  void BeginCapture() override;
  StatusOr<std::unique_ptr<CapturedOps>> EndCapture() override;
  void Replay(const CapturedOps& ops) override;

  // For the backend and its ops.
  const std::string& name() const { return name_; }
  int num_multiprocessors() const { return num_multiprocessors_; }
  cudaStream_t stream() const { return stream_; }
  OverlappingStream queue() const { return {stream_, can_overlap_}; }
  bool is_capturing() const { return is_capturing_; }
  bool has_captured() const { return has_captured_; }  // captured ops may point to older memory
  // An op failed for want of memory.
  void Fail(const Status& status);

 private:
  std::string name_;
  int num_multiprocessors_ = 1;
  bool can_overlap_ = false;  // a kernel may begin while the one before it ends
  cudaStream_t stream_ = nullptr;
  // Mark i is the event i % kNumMarks, until a later mark takes it over; time points likewise.
  static constexpr int64_t kNumMarks = 8;
  std::array<cudaEvent_t, kNumMarks> marks_ = {};
  int64_t last_mark_ = 0;
  static constexpr int64_t kNumTimePoints = 8;
  std::array<cudaEvent_t, kNumTimePoints> time_points_ = {};
  int64_t last_time_point_ = 0;
  bool is_capturing_ = false;
  bool has_captured_ = false;
  Status status_;
};

}  // namespace tandem
