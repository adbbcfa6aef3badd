#pragma once

// The Device of backends that compute in host memory, on the caller's thread and on threads it
// waits for: every op and copy is done when it returns, so there is nothing to wait for or to
// measure.

#include "kernels/device.h"

namespace tandem {

class HostDevice final : public Device {
 public:
  bool memory_is_host() const override { return true; }
  DeviceMemory memory() const override { return {}; }
  Status status() const override { return OkStatus(); }

  StatusOr<OwnedTensor> Allocate(DType dtype, std::initializer_list<int64_t> shape) override;
  StatusOr<OwnedTensor> Upload(const Tensor& host, DType dtype) override;
  void CopyIn(const Tensor& out, const Tensor& host) override { ConvertTensor(out, host); }
  void CopyOut(const Tensor& host, const Tensor& x) override { ConvertTensor(host, x); }

  StatusOr<OwnedTensor> AllocateStaging(DType dtype,
                                        std::initializer_list<int64_t> shape) override {
    return Allocate(dtype, shape);
  }
  void StartCopyIn(const Tensor& out, const Tensor& staging) override { CopyIn(out, staging); }
  void StartCopyOut(const Tensor& staging, const Tensor& x) override { CopyOut(staging, x); }
  int64_t SetMark() override { return 0; }
  void WaitFor(int64_t /*mark*/) override {}
  int64_t SetTimePoint() override { return 0; }
  double SecondsBetween(int64_t /*from*/, int64_t /*to*/) override { return 0; }

  bool can_capture() const override { return false; }
  void BeginCapture() override {}
  StatusOr<std::unique_ptr<CapturedOps>> EndCapture() override;
  void Replay(const CapturedOps& /*ops*/) override {}
};

}  // namespace tandem
