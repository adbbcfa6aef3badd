#pragma once

// A few numbers (i32) that the host writes and ops read: one memory where the device's is the
// host's, else two, and Send copies.
// Thread: engine loop. Owns: both memories; borrows the device, which outlives it.
// Failure: memory, in Create.

#include <cstdint>
#include <span>

#include "common/status.h"
#include "kernels/device.h"

namespace tandem {

class SentNumbers {
 public:
  SentNumbers() = default;
  static StatusOr<SentNumbers> Create(Device* device, int64_t size) {
    SentNumbers numbers;
    numbers.device_ = device;
    ASSIGN_OR_RETURN(numbers.memory_, device->Allocate(DType::kI32, {size}));
    if (device->memory_is_host()) return numbers;
    ASSIGN_OR_RETURN(numbers.staging_, device->AllocateStaging(DType::kI32, {size}));
    return numbers;
  }

  // Room for them. The copy before is done.
  std::span<int32_t> Begin(int64_t count) {
    device_->WaitFor(sent_);
    const Tensor& host = staging_.view().empty() ? memory_.view() : staging_.view();
    CHECK_LE(count, host.rows());
    return {host.Data<int32_t>(), static_cast<size_t>(count)};
  }
  // Starts the copy; it is done before the next ops.
  void Send(int64_t count) {
    if (staging_.view().empty()) return;
    device_->StartCopyIn(memory_.view().Rows(0, count), staging_.view().Rows(0, count));
    sent_ = device_->SetMark();
  }
  Tensor device(int64_t count) const { return memory_.view().Rows(0, count); }

 private:
  Device* device_ = nullptr;
  OwnedTensor memory_;
  OwnedTensor staging_;  // empty: memory_ is the host's
  int64_t sent_ = 0;     // mark
};

}  // namespace tandem
