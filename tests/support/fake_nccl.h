#pragma once

// A library with NCCL's names (libfake_nccl.so, opened as NCCL would be): ranks are threads of one
// process and "device" memory is the host's. An exchange is done when the call returns, or goes
// into a stream of an emulated device; a sum runs in rank order, rounded after each addition, as by
// a ring of GPUs. A rank that aborts or fails makes the others' calls fail with ncclRemoteError.

#include <atomic>
#include <functional>
#include <string>

namespace tandem {

// What a test sets and reads in the library, under the name "fake_nccl". Set while no call runs.
struct FakeNccl {
  // The call of this function at this rank fails with this ncclResult_t and this last error.
  std::string failing_function;
  int failing_rank = 0;
  int failure = 0;
  std::string last_error;

  // Puts an exchange into a stream; empty: it is done at once.
  std::function<void(void* stream, std::function<void()> exchange)> enqueue;

  std::atomic<int> async_error = 0;  // of every communicator
  std::atomic<int> num_live = 0, num_destroyed = 0, num_aborted = 0;
  std::atomic<void*> last_stream = nullptr;
};

}  // namespace tandem
