// A library with NCCL's names whose ranks are processes (libprocess_nccl.so): "device" memory is
// the host's, and an exchange goes through memory that all of them map. It goes into a stream of an
// emulated device, by FakeNccl::enqueue. What breaks is for fake_nccl.cc to show; here a rank that
// dies leaves the others waiting, as NCCL does.

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/shared_memory.h"
#include "kernels/shared_communicator.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/nccl_exports.h"

namespace tandem {
namespace {

constexpr int kSystemError = 2, kInvalidArgument = 4;
constexpr int64_t kMemoryBytes = int64_t{1} << 30;  // pages that are never touched take none

// Places that this process has made, for the others to open.
std::mutex places_mutex;
std::vector<SharedMemory> places;

std::string PathOf(const SharedMemory& place) {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(place.file());
}

DType TypeOf(int type) {
  return type == kNcclFloat32 ? DType::kF32 : type == kNcclBfloat16 ? DType::kBf16 : DType::kI32;
}

// What an NcclComm points to.
struct ProcessRanks {
  SharedMemory memory;
  std::unique_ptr<SharedCommunicator> communicator;
};

SharedCommunicator* RanksOf(NcclComm comm) {
  return reinterpret_cast<ProcessRanks*>(comm)->communicator.get();
}

}  // namespace

extern "C" {

extern FakeNccl fake_nccl;
FakeNccl fake_nccl;

}  // extern "C"

namespace {

int Exchange(void* stream, std::function<void()> exchange) {
  fake_nccl.enqueue(stream, std::move(exchange));
  return kNcclSuccess;
}

int End(NcclComm comm) {
  delete reinterpret_cast<ProcessRanks*>(comm);
  return kNcclSuccess;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22809;
  return kNcclSuccess;
}

int ncclGetUniqueId(NcclUniqueId* id) {
  StatusOr<SharedMemory> place = SharedMemory::Create("nccl", kMemoryBytes);
  if (!place.ok()) return kSystemError;
  const std::lock_guard lock(places_mutex);
  places.push_back(*std::move(place));
  id->bytes = {};
  const std::string path = PathOf(places.back());
  std::memcpy(id->bytes.data(), path.data(), path.size());
  return kNcclSuccess;
}

int ncclCommInitRank(NcclComm* comm, int num_ranks, NcclUniqueId id, int rank) {
  UniqueFd file(open(id.bytes.data(), O_RDWR | O_CLOEXEC));
  if (!file) return kInvalidArgument;
  std::unique_ptr<ProcessRanks> made(
      new ProcessRanks{.memory = SharedMemory::Open(std::move(file)), .communicator = nullptr});
  auto ranks = SharedCommunicator::Create({&made->memory, 0}, rank, num_ranks);
  if (!ranks.ok()) return kSystemError;
  made->communicator = *std::move(ranks);
  made->communicator->Meet();
  *comm = reinterpret_cast<NcclComm>(made.release());
  return kNcclSuccess;
}

int ncclCommDestroy(NcclComm comm) { return End(comm); }
int ncclCommAbort(NcclComm comm) { return End(comm); }

int ncclCommGetAsyncError(NcclComm, int* result) {
  *result = kNcclSuccess;
  return kNcclSuccess;
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int, NcclComm comm,
                  void* stream) {
  return Exchange(stream, [=] {
    const Tensor x(to, TypeOf(type), {static_cast<int64_t>(count)});
    if (from != to) std::memcpy(to, from, static_cast<size_t>(x.NumBytes()));
    RanksOf(comm)->AllReduce(x);
  });
}

int ncclAllGather(const void* from, void* to, size_t count, int type, NcclComm comm, void* stream) {
  return Exchange(stream, [=] {
    const Tensor x(to, TypeOf(type), {RanksOf(comm)->size(), static_cast<int64_t>(count)});
    const Tensor own = x.Rows(RanksOf(comm)->rank(), 1);
    if (from != own.data) std::memcpy(own.data, from, static_cast<size_t>(own.NumBytes()));
    RanksOf(comm)->AllGather(x);
  });
}

int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, NcclComm comm,
                  void* stream) {
  return Exchange(stream, [=] {
    const Tensor x(to, TypeOf(type), {static_cast<int64_t>(count)});
    if (from != to) std::memcpy(to, from, static_cast<size_t>(x.NumBytes()));
    RanksOf(comm)->Broadcast(x, root);
  });
}

const char* ncclGetErrorString(int) { return "an error of the library in NCCL's place"; }
const char* ncclGetLastError(NcclComm) { return ""; }

}  // extern "C"

}  // namespace tandem
