// NCCL over one device: a world of one, whose exchanges change nothing. On the emulated device with
// the tests' own library in NCCL's place.

#include "kernels/cuda/libraries/nccl.h"

#include <cuda_runtime.h>

#include <cstdlib>
#include <vector>

#include "kernels/cuda/device_memory.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// x, after `exchange` of it on the device.
template <class F>
std::vector<uint16_t> Exchanged(NcclCommunicator& communicator, cudaStream_t stream,
                                std::vector<uint16_t> x, DType dtype, F exchange) {
  const int64_t shape[] = {1, static_cast<int64_t>(x.size()) * 2 / SizeOf(dtype)};
  const Tensor host(x.data(), dtype, {shape[0], shape[1]});
  const OwnedTensor device = AllocateDevice(dtype, shape, stream).value();
  CopyRows(device, host, stream);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);  // the tests' library does not wait
  exchange(device.view());
  const Status status = communicator.status();
  INFO(status.ToString());
  REQUIRE(status.ok());
  CopyRows(host, device, stream);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  return x;
}

TEST_CASE("NCCL: every exchange in a world of one leaves the same bits") {
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
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  auto communicator = NcclCommunicator::Init(*nccl, {0, 1}, *id, stream);
  INFO(communicator.status().ToString());
  REQUIRE(communicator.ok());
  std::vector<uint16_t> bits;  // every bf16; read as float32, numbers of any size
  for (int i = 0; i < 1 << 16; ++i) bits.push_back(static_cast<uint16_t>(i));
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    CAPTURE(DTypeName(dtype));
    NcclCommunicator& one = **communicator;
    CHECK(Exchanged(one, stream, bits, dtype, [&](const Tensor& x) { one.AllReduce(x); }) == bits);
    CHECK(Exchanged(one, stream, bits, dtype, [&](const Tensor& x) { one.AllGather(x); }) == bits);
    CHECK(Exchanged(one, stream, bits, dtype, [&](const Tensor& x) { one.Broadcast(x, 0); }) ==
          bits);
  }
  communicator->reset();
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

}  // namespace
}  // namespace tandem
