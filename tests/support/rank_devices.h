#pragma once

// Devices for the ranks of one model, which are threads here: emulated ones, with the tests' own
// library in NCCL's place (TANDEM_FAKE_NCCL), else those of the host.
// One at a time; while it lives, exchanges go into the devices' streams.

#include "kernels/backend.h"
#include "kernels/cuda/libraries/shared_library.h"
#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/fake_nccl.h"

#include <catch2/catch.hpp>

namespace tandem {

#ifdef TANDEM_FAKE_NCCL
class RankDevices {
 public:
  RankDevices() {
    REQUIRE(SharedLibrary::Open(TANDEM_FAKE_NCCL)->Find("fake_nccl", &fake_).ok());
    fake_->enqueue = EnqueueEmulatedExchange;
  }
  ~RankDevices() {
    fake_->enqueue = {};
    CHECK(fake_->num_live == 0);
  }
  bool are_at_least(int) const { return true; }
  static CudaBackendOptions OptionsOf(int rank, DType dtype, bool uses_peers) {
    return {.dtype = dtype,
            .num_threads = 1,
            .device = rank,
            .nccl_library = TANDEM_FAKE_NCCL,
            .uses_peers = uses_peers};
  }

 private:
  FakeNccl* fake_ = nullptr;
};
#else
struct RankDevices {
  bool are_at_least(int count) const {
    if (NumCudaDevices() >= count) return true;
    WARN("SKIPPED: there are fewer than " << count << " devices");
    return false;
  }
  static CudaBackendOptions OptionsOf(int rank, DType dtype, bool uses_peers) {
    return {.dtype = dtype, .device = rank, .uses_peers = uses_peers};
  }
};
#endif

}  // namespace tandem
