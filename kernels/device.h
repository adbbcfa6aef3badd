#pragma once

// The memory that ops compute on, and their order in time: allocation, copies between host and
// device, marks, the device's clock, and capture of ops for replay. kernels/host_device.h is the
// host itself; kernels/cuda/cuda_device.h is a GPU, where ops and copies run in one stream beside
// the host.
// Thread: engine loop. Ownership: tensors returned by Allocate, Upload and AllocateStaging are the
// caller's and go away before the device does; views are borrowed for the call.
// Failure: memory that cannot be had is a Status; a shape that does not fit is our own mistake
// (CHECK); a device that breaks ends the process with its message.

#include <cstdint>
#include <initializer_list>
#include <memory>

#include "common/status.h"
#include "kernels/tensor.h"

namespace tandem {

struct DeviceMemory {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
};

// Ops as they were called between BeginCapture and EndCapture, to be run again as one.
class CapturedOps {
 public:
  virtual ~CapturedOps() = default;
};

class Device {
 public:
  virtual ~Device() = default;

  // Whether the host may read and write tensors in place. Otherwise the copies below are the only
  // way, and Data() is an address for ops alone.
  virtual bool memory_is_host() const = 0;
  // Of a device that has memory of its own; zeros where memory_is_host().
  virtual DeviceMemory memory() const = 0;
  // Why an op could not be done: it needed more scratch memory than before, and there was none.
  // From then on the results of ops must not be used.
  virtual Status status() const = 0;

  // ---- memory ----
  // Zeroed, 64-byte aligned.
  virtual StatusOr<OwnedTensor> Allocate(DType dtype, std::initializer_list<int64_t> shape) = 0;
  // A copy of a host tensor of any float type, converted to `dtype`. Ops take norm weights, biases
  // and RoPE tables as kF32.
  virtual StatusOr<OwnedTensor> Upload(const Tensor& host, DType dtype) = 0;
  // Between host and device memory; equal shapes and types. Done when they return.
  virtual void CopyIn(const Tensor& out, const Tensor& host) = 0;
  virtual void CopyOut(const Tensor& host, const Tensor& x) = 0;

  // ---- beside the host ----
  // Where memory_is_host(), all of these are done when they return, and nothing can be captured.

  // Host memory for the two copies below.
  virtual StatusOr<OwnedTensor> AllocateStaging(DType dtype,
                                                std::initializer_list<int64_t> shape) = 0;
  // CopyIn and CopyOut that take their place in the order of the ops and return at once. The caller
  // leaves `staging` alone until a mark that was set after the copy is reached. What StartCopyIn
  // copies may be the device's memory, too.
  virtual void StartCopyIn(const Tensor& out, const Tensor& staging) = 0;
  virtual void StartCopyOut(const Tensor& staging, const Tensor& x) = 0;
  // A point in the order of the ops. WaitFor returns when everything before the mark is done; for
  // an old mark it may wait for some later work too.
  virtual int64_t SetMark() = 0;
  virtual void WaitFor(int64_t mark) = 0;
  // A point in the order of the ops at which the device's clock is read, and the time between two
  // of the latest eight such points, after waiting for the later one.
  virtual int64_t SetTimePoint() = 0;
  virtual double SecondsBetween(int64_t from, int64_t to) = 0;

  // Ops called between BeginCapture and EndCapture are recorded, not run. They must not need what
  // the host does meanwhile (CopyIn, CopyOut, AttentionPlan::Fill) nor more scratch memory than has
  // been used before. A replay reads what the tensors contain at that time; all sizes, including
  // those of the attention plan, are the ones of the capture.
  virtual bool can_capture() const = 0;
  virtual void BeginCapture() = 0;
  virtual StatusOr<std::unique_ptr<CapturedOps>> EndCapture() = 0;
  virtual void Replay(const CapturedOps& ops) = 0;
};

}  // namespace tandem
