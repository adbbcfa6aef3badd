// The kernels of exchanges through peers' memory, and how ranks map it.

#include <unistd.h>

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_peers.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/norm_row.cuh"
#include "kernels/cuda/part_columns.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kUnitBytes = 16;

using Room = CudaPeers::Room;

// What a kernel knows of the ranks, and of the exchange in units of T.
struct Peers {
  Room* rooms[kMaxDeviceRanks];
  int rank, size;
};
template <class T>
struct Rows {
  T* x;
  int64_t x_stride;
  const T* part;
  int64_t part_stride;
  int64_t room_stride;  // of rows in a room
  PartColumns columns;
};

// One row of x: this rank's part to all, and theirs to x. All threads of the block.
template <class T>
__device__ void ExchangeRow(const Peers& peers, const Rows<T>& rows) {
  const unsigned row = blockIdx.x;
  Room* own = peers.rooms[peers.rank];
  const uint32_t exchange = own->counts[row] + 1;
  const auto half_of = [&](Room* room) {
    return reinterpret_cast<T*>(room->halves[exchange % 2]) + row * rows.room_stride;
  };
  const T* part = rows.part + row * rows.part_stride;
  for (int i = static_cast<int>(threadIdx.x); i < rows.columns.count[peers.rank]; i += kThreads) {
    half_of(own)[i] = part[i];
  }
  __syncthreads();
  if (threadIdx.x < static_cast<unsigned>(peers.size)) {
    StoreForPeers(&peers.rooms[threadIdx.x]->flags[row][peers.rank], exchange);
  }
  __syncthreads();
  if (threadIdx.x < static_cast<unsigned>(peers.size)) {
    AwaitPeer(&own->flags[row][threadIdx.x], exchange);
  }
  __syncthreads();
  T* x = rows.x + row * rows.x_stride;
  for (int r = 0; r < peers.size; ++r) {
    const T* from = half_of(peers.rooms[r]);
    T* to = x + rows.columns.begin[r];
    for (int i = static_cast<int>(threadIdx.x); i < rows.columns.count[r]; i += kThreads) {
      to[i] = from[i];
    }
  }
  // Of rows without a block as well: all count the exchanges.
  for (unsigned i = row + gridDim.x * threadIdx.x; i < CudaPeers::kMostRows;
       i += gridDim.x * kThreads) {
    own->counts[i] = exchange;
  }
}

// A block: a row.
template <class T>
__global__ void GatherRowsKernel(Peers peers, Rows<T> rows) {
  WaitForPreviousKernel();
  ExchangeRow(peers, rows);
}

template <class Out, class X>
__global__ void GatherNormedKernel(Peers peers, Rows<uint4> rows, Out* out, int64_t out_stride,
                                   const X* x, int64_t x_stride, const float* weight, float epsilon,
                                   int64_t hidden) {
  const RowNorm<kThreads> norm(weight, hidden);
  WaitForPreviousKernel();
  ExchangeRow(peers, rows);
  __syncthreads();
  norm.Apply(out + blockIdx.x * out_stride, x + blockIdx.x * x_stride, epsilon);
}

Peers PeersOf(std::span<Room* const, kMaxDeviceRanks> rooms, int rank, int size) {
  Peers peers = {.rooms = {}, .rank = rank, .size = size};
  std::ranges::copy(rooms, peers.rooms);
  return peers;
}

int64_t RoomRowBytes(const Tensor& x, const RankColumns& columns) {
  return (WidestPart(columns) * SizeOf(x.dtype) + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
}

template <class T>
Rows<T> RowsOf(const Tensor& x, const Tensor& part, const RankColumns& columns) {
  const int64_t numbers = static_cast<int64_t>(sizeof(T)) / SizeOf(x.dtype);
  Rows<T> rows = {.x = static_cast<T*>(x.data),
                  .x_stride = x.row_stride / numbers,
                  .part = static_cast<const T*>(part.data),
                  .part_stride = part.row_stride / numbers,
                  .room_stride = RoomRowBytes(x, columns) / static_cast<int64_t>(sizeof(T)),
                  .columns = {}};
  CHECK(InUnits(columns, numbers, &rows.columns));
  return rows;
}

bool IsWide(const Tensor& x, const RankColumns& columns) {
  PartColumns units = {};
  return InUnits(columns, kUnitBytes / SizeOf(x.dtype), &units) && HasRowsOf16Bytes(x);
}

}  // namespace

// ---- mapping ----

// What a rank sends the others.
struct PeerAddress {
  int32_t pid = 0, device = 0;
  std::shared_ptr<OwnedTensor>* room = nullptr;  // for threads of its process
  cudaIpcMemHandle_t handle = {};                // for others
};

StatusOr<std::unique_ptr<CudaPeers>> CudaPeers::Map(CudaDevice* device,
                                                    Communicator* communicator) {
  const int rank = communicator->rank(), size = communicator->size();
  std::unique_ptr<CudaPeers> peers(new CudaPeers(device, rank, size));
  const int64_t room_words = (sizeof(Room) + 3) / 4;
  ASSIGN_OR_RETURN(OwnedTensor room,
                   AllocateDevice(DType::kI32, {&room_words, 1}, device->stream()));
  peers->room_ = std::make_shared<OwnedTensor>(std::move(room));
  std::vector<PeerAddress> all(static_cast<size_t>(size));
  PeerAddress& own = all[static_cast<size_t>(rank)];
  own.pid = getpid();
  own.room = &peers->room_;
  const auto share = [&]() -> Status {
    RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&own.device), "reading the device's number"));
    return CudaStatus(cudaIpcGetMemHandle(&own.handle, peers->room_->view().data),
                      "sharing memory between devices");
  };
  const Status shared = share();
  static_assert(sizeof(PeerAddress) % 4 == 0);
  const Tensor host(all.data(), DType::kI32, {size, int64_t{sizeof(PeerAddress)} / 4});
  ASSIGN_OR_RETURN(const OwnedTensor addresses,
                   device->Allocate(DType::kI32, {host.rows(), host.shape[1]}));
  device->CopyIn(addresses, host);
  communicator->AllGather(addresses);
  device->CopyOut(host, addresses);
  const auto map_all = [&]() -> Status {
    RETURN_IF_ERROR(shared);
    for (int r = 0; r < size; ++r) {
      RETURN_IF_ERROR(peers->MapRank(r, all[static_cast<size_t>(r)]));
    }
    return OkStatus();
  };
  // All ranks go the same way; the sum is also where each has mapped what the others have.
  float num_failed = map_all().ok() ? 0 : 1;
  const Tensor failed(&num_failed, DType::kF32, {1});
  ASSIGN_OR_RETURN(const OwnedTensor sum, device->Allocate(DType::kF32, {1}));
  device->CopyIn(sum, failed);
  communicator->AllReduce(sum);
  device->CopyOut(failed, sum);
  RETURN_IF_ERROR(communicator->status());
  if (num_failed > 0) peers = nullptr;
  return StatusOr<std::unique_ptr<CudaPeers>>(std::move(peers));  // nvcc does not move by itself
}

Status CudaPeers::MapRank(int rank, const PeerAddress& address) {
  const auto r = static_cast<size_t>(rank);
  if (address.pid == getpid()) {
    kept_[r] = *address.room;
    rooms_[r] = static_cast<Room*>(kept_[r]->view().data);
    int device = 0;
    RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "reading the device's number"));
    if (device == address.device) return OkStatus();
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(address.device, 0);
    if (enabled == cudaErrorPeerAccessAlreadyEnabled) return OkStatus();
    return CudaStatus(enabled, "reading the memory of another device");
  }
  RETURN_IF_ERROR(
      CudaStatus(cudaIpcOpenMemHandle(&mapped_[r], address.handle, cudaIpcMemLazyEnablePeerAccess),
                 "reading the memory of another device"));
  rooms_[r] = static_cast<Room*>(mapped_[r]);
  return OkStatus();
}

CudaPeers::~CudaPeers() {
  for (void* mapped : mapped_) {
    if (mapped != nullptr) cudaIpcCloseMemHandle(mapped);
  }
}

// ---- exchanges ----

bool CudaPeers::Takes(const Tensor& x, const RankColumns& columns) {
  return x.rows() <= kMostRows && x.rows() * RoomRowBytes(x, columns) <= kHalfBytes;
}

bool CudaPeers::Norms(const Tensor& x, const RankColumns& columns) { return IsWide(x, columns); }

void CudaPeers::Gather(const Tensor& x, const Tensor& part, const RankColumns& columns) {
  const Peers peers = PeersOf(rooms_, rank_, size_);
  const auto launch = [&]<class T>(const Rows<T>& rows) {
    Launch(device_->queue(), static_cast<unsigned>(x.rows()), kThreads, GatherRowsKernel<T>, peers,
           rows);
  };
  if (IsWide(x, columns) && HasRowsOf16Bytes(part)) return launch(RowsOf<uint4>(x, part, columns));
  if (SizeOf(x.dtype) == 2) return launch(RowsOf<uint16_t>(x, part, columns));
  launch(RowsOf<uint32_t>(x, part, columns));
}

void CudaPeers::GatherNormed(const Tensor& x, const Tensor& part, const RankColumns& columns,
                             const ExchangeNorm& norm) {
  const Peers peers = PeersOf(rooms_, rank_, size_);
  CHECK(HasRowsOf16Bytes(part)) << part;
  const Rows<uint4> rows = RowsOf<uint4>(x, part, columns);
  WithTypes(norm.out, x, [&]<class Out, class X>(Out* out, const X* x_data) {
    Launch(device_->queue(), static_cast<unsigned>(x.rows()), kThreads, GatherNormedKernel<Out, X>,
           peers, rows, out, norm.out.row_stride, x_data, x.row_stride, norm.weight.Data<float>(),
           norm.epsilon, x.shape[1]);
  });
}

}  // namespace tandem
