// NCCL over the device alone: a world of one, whose sum is what was there. On the emulated device
// by the tests' own library in NCCL's place.

#include "kernels/cuda/libraries/nccl.h"

#include <cuda_runtime.h>

#include <cstdlib>
#include <vector>

#include "kernels/cuda/device_memory.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// x, after the ranks have added up theirs.
std::vector<uint16_t> AllReduced(NcclCommunicator& communicator, std::vector<uint16_t> x,
                                 DType dtype) {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  const int64_t size = static_cast<int64_t>(x.size()) * 2 / SizeOf(dtype);
  const Tensor host(x.data(), dtype, {size});
  {
    const OwnedTensor device = AllocateDevice(dtype, {&size, 1}, stream).value();
    CopyRows(device, host, stream);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);  // the tests' library does not wait
    const Status status = communicator.AllReduce(device, stream);
    INFO(status.ToString());
    REQUIRE(status.ok());
    CopyRows(host, device, stream);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  }
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
  return x;
}

TEST_CASE("NCCL: the sum over a world of one has the same bits") {
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);  // ranks of one host meet there
  const StatusOr<Nccl> nccl = Nccl::Open(TANDEM_NCCL_LIBRARY);
  if (!nccl.ok()) {
    WARN("SKIPPED: " << nccl.status().message());
    return;
  }
  INFO("NCCL " << nccl->version());
  const StatusOr<NcclUniqueId> id = nccl->MakeUniqueId();
  INFO(id.status().ToString());
  REQUIRE(id.ok());
  const auto communicator = NcclCommunicator::Init(*nccl, {0, 1}, *id);
  INFO(communicator.status().ToString());
  REQUIRE(communicator.ok());
  std::vector<uint16_t> bits;  // every bf16 there is; as float32 numbers of any size
  for (int i = 0; i < 1 << 16; ++i) bits.push_back(static_cast<uint16_t>(i));
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    CAPTURE(DTypeName(dtype));
    CHECK(AllReduced(**communicator, bits, dtype) == bits);
  }
  CHECK((*communicator)->AsyncStatus() == OkStatus());
}

}  // namespace
}  // namespace tandem
