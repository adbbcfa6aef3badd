#include "tests/support/fake_nccl.h"

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/tensor.h"
#include "tests/support/nccl_exports.h"

namespace tandem {
namespace {

constexpr int kUnhandledCudaError = 1, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6;

struct Contribution {
  const void* from;
  void* to;
  size_t count;
  int type;
};

// The ranks that share an id, and the collective call that they are in.
class World {
 public:
  explicit World(int size) : size_(size), calls_(static_cast<size_t>(size)) {}

  // Returns when all ranks have called; the last one does the work.
  template <class Work>
  int Meet(int rank, const Contribution& call, Work work) {
    std::unique_lock lock(mutex_);
    calls_[static_cast<size_t>(rank)] = call;
    const int generation = generation_;
    if (++num_arrived_ == size_) {
      num_arrived_ = 0;
      ++generation_;
      result_ = work(calls_);
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return generation != generation_ || is_broken_; });
    return generation == generation_ ? kRemoteError : result_;
  }

  void Break() {
    const std::lock_guard lock(mutex_);
    is_broken_ = true;
    changed_.notify_all();
  }
  bool is_broken() {
    const std::lock_guard lock(mutex_);
    return is_broken_;
  }
  int size() const { return size_; }

 private:
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Contribution> calls_;
  int num_arrived_ = 0, generation_ = 0, result_ = 0;
  bool is_broken_ = false;
};

std::mutex worlds_mutex;
std::map<int, std::shared_ptr<World>> worlds;  // by the number in their id; null: no rank yet
int num_ids = 0;

template <class T, class Add>
void Sum(const std::vector<Contribution>& calls, Add add) {
  std::vector<T> sum(calls[0].count);
  std::memcpy(sum.data(), calls[0].from, sum.size() * sizeof(T));
  for (size_t rank = 1; rank < calls.size(); ++rank) {
    const T* x = static_cast<const T*>(calls[rank].from);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = add(sum[i], x[i]);
  }
  for (const Contribution& call : calls) std::memcpy(call.to, sum.data(), sum.size() * sizeof(T));
}

bool AreAlike(const std::vector<Contribution>& calls) {
  for (const Contribution& call : calls) {
    if (call.count != calls[0].count || call.type != calls[0].type) return false;
  }
  return true;
}

size_t BytesOf(const Contribution& call) {
  return call.count * (call.type == kNcclBfloat16 ? sizeof(Bf16) : sizeof(float));
}

int SumAll(const std::vector<Contribution>& calls) {
  if (!AreAlike(calls) || calls[0].type == kNcclInt32) return kInvalidUsage;
  if (calls[0].type == kNcclFloat32) {
    Sum<float>(calls, [](float a, float b) { return a + b; });
  } else {
    Sum<Bf16>(calls, [](Bf16 a, Bf16 b) { return ToBf16(ToFloat(a) + ToFloat(b)); });
  }
  return kNcclSuccess;
}

int GatherAll(const std::vector<Contribution>& calls) {
  if (!AreAlike(calls)) return kInvalidUsage;
  const size_t bytes = BytesOf(calls[0]);
  std::vector<char> all(calls.size() * bytes);
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    std::memcpy(all.data() + rank * bytes, calls[rank].from, bytes);
  }
  for (const Contribution& call : calls) std::memcpy(call.to, all.data(), all.size());
  return kNcclSuccess;
}

int CopyToAll(const std::vector<Contribution>& calls, size_t root) {
  if (!AreAlike(calls)) return kInvalidUsage;
  for (const Contribution& call : calls) {
    if (call.to != calls[root].from) std::memcpy(call.to, calls[root].from, BytesOf(call));
  }
  return kNcclSuccess;
}

// Sets the id's last byte as well, so that an id copied in part is unknown.
NcclUniqueId MakeId(int number) {
  NcclUniqueId id;
  std::memcpy(id.bytes.data(), &number, sizeof number);
  id.bytes.back() = 'x';
  return id;
}

std::shared_ptr<World> WorldOf(const NcclUniqueId& id, int size) {
  int number = 0;
  std::memcpy(&number, id.bytes.data(), sizeof number);
  if (MakeId(number).bytes != id.bytes) return nullptr;
  const std::lock_guard lock(worlds_mutex);
  const auto found = worlds.find(number);
  if (found == worlds.end()) return nullptr;
  if (found->second == nullptr) found->second = std::make_shared<World>(size);
  return found->second->size() == size ? found->second : nullptr;
}

}  // namespace

struct NcclCommOpaque {
  std::shared_ptr<World> world;
  int rank;
};

extern "C" {

extern FakeNccl fake_nccl;
FakeNccl fake_nccl;

}  // extern "C"

namespace {

bool IsToFail(const char* function, int rank) {
  return fake_nccl.failing_function == function && fake_nccl.failing_rank == rank;
}

// One collective call of a rank: waits for the others', and the last one does the work.
template <class Work>
int Exchange(const char* function, NcclComm comm, const Contribution& call, void* stream,
             Work work) {
  fake_nccl.last_stream = stream;
  if (call.type != kNcclFloat32 && call.type != kNcclBfloat16 && call.type != kNcclInt32) {
    return kInvalidArgument;
  }
  if (IsToFail(function, comm->rank)) {
    comm->world->Break();
    return fake_nccl.failure;
  }
  if (!fake_nccl.enqueue) return comm->world->Meet(comm->rank, call, work);
  fake_nccl.enqueue(stream, [world = comm->world, rank = comm->rank, call, work] {
    if (world->Meet(rank, call, work) != kNcclSuccess) world->Break();
  });
  return kNcclSuccess;
}

int EndOf(NcclComm comm, std::atomic<int>* count) {
  ++*count;
  --fake_nccl.num_live;
  delete comm;
  return kNcclSuccess;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22809;
  return kNcclSuccess;
}

int ncclGetUniqueId(NcclUniqueId* id) {
  if (IsToFail("ncclGetUniqueId", 0)) return fake_nccl.failure;
  const std::lock_guard lock(worlds_mutex);
  worlds.emplace(++num_ids, nullptr);
  *id = MakeId(num_ids);
  return kNcclSuccess;
}

int ncclCommInitRank(NcclComm* comm, int num_ranks, NcclUniqueId id, int rank) {
  if (rank < 0 || rank >= num_ranks) return kInvalidArgument;
  if (IsToFail("ncclCommInitRank", rank)) return fake_nccl.failure;
  std::shared_ptr<World> world = WorldOf(id, num_ranks);
  if (world == nullptr) return kInvalidArgument;
  const int result = world->Meet(rank, {}, [](const auto&) { return kNcclSuccess; });
  if (result != kNcclSuccess) return result;
  ++fake_nccl.num_live;
  *comm = new NcclCommOpaque{std::move(world), rank};
  return kNcclSuccess;
}

int ncclCommDestroy(NcclComm comm) { return EndOf(comm, &fake_nccl.num_destroyed); }

int ncclCommAbort(NcclComm comm) {
  comm->world->Break();
  return EndOf(comm, &fake_nccl.num_aborted);
}

int ncclCommGetAsyncError(NcclComm comm, int* result) {
  *result = comm->world->is_broken() ? kRemoteError : fake_nccl.async_error.load();
  return kNcclSuccess;
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, NcclComm comm,
                  void* stream) {
  if (op != kNcclSum) return kInvalidArgument;
  return Exchange("ncclAllReduce", comm, {from, to, count, type}, stream, SumAll);
}

int ncclAllGather(const void* from, void* to, size_t count, int type, NcclComm comm, void* stream) {
  return Exchange("ncclAllGather", comm, {from, to, count, type}, stream, GatherAll);
}

int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, NcclComm comm,
                  void* stream) {
  if (root < 0 || root >= comm->world->size()) return kInvalidArgument;
  return Exchange(
      "ncclBroadcast", comm, {from, to, count, type}, stream,
      [root](const auto& calls) { return CopyToAll(calls, static_cast<size_t>(root)); });
}

const char* ncclGetErrorString(int result) {
  switch (result) {
    case kUnhandledCudaError:
      return "unhandled cuda error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "unknown result code";
  }
}

#ifndef FAKE_NCCL_IS_OLD  // before 2.13
const char* ncclGetLastError(NcclComm) { return fake_nccl.last_error.c_str(); }
#endif

}  // extern "C"

}  // namespace tandem
