// What ranks on several GPUs exchange: the copies around NCCL's.

#include <algorithm>
#include <utility>

#include "kernels/cuda/cuda_exchange.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/part_columns.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;

// out[t, begin of r + c] = parts[r, t, c].  A block: a row t of one rank r.
template <class T>
__global__ void PutPartsKernel(T* out, int64_t out_stride, const T* parts, int64_t width,
                               PartColumns columns) {
  WaitForPreviousKernel();
  const int64_t row = blockIdx.x, num_rows = gridDim.x;
  const int r = static_cast<int>(blockIdx.y);
  const T* from = parts + (r * num_rows + row) * width;
  T* to = out + row * out_stride + columns.begin[r];
  for (int i = static_cast<int>(threadIdx.x); i < columns.count[r]; i += kThreads) to[i] = from[i];
}

__global__ void IdsFromKernel(int32_t* out, const int32_t* ids, int64_t count, int32_t first) {
  WaitForPreviousKernel();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) out[i] = ids[i] - first;
}

}  // namespace

CudaExchange::CudaExchange(CudaDevice* device, std::unique_ptr<Communicator> communicator,
                           std::unique_ptr<CudaPeers> peers)
    : device_(device), communicator_(std::move(communicator)), peers_(std::move(peers)) {}

void* CudaExchange::Room(OwnedTensor* memory, int64_t bytes) {
  const int64_t size = (bytes + 3) / 4;
  if (memory->view().NumElements() < size) {
    CHECK(!device_->is_capturing())
        << "room for " << bytes << " bytes of parts was not allocated before the capture";
    if (device_->has_captured()) outgrown_.push_back(std::move(*memory));
    *memory = {};
    StatusOr<OwnedTensor> grown = AllocateDevice(DType::kI32, {&size, 1}, device_->stream());
    if (!grown.ok()) {
      device_->Fail(grown.status());
      return nullptr;
    }
    *memory = *std::move(grown);
  }
  return memory->view().data;
}

Tensor CudaExchange::Parts(const Tensor& x, const RankColumns& columns) {
  const int64_t size = communicator_->size(), width = WidestPart(columns);
  void* room = Room(&parts_, size * x.rows() * width * SizeOf(x.dtype));
  return room == nullptr ? Tensor() : Tensor(room, x.dtype, {size, x.rows(), width});
}

Tensor CudaExchange::Part(const Tensor& x, const RankColumns& columns) {
  const Slice own = columns.own();
  if (UsesPeers(x, columns)) return x.Columns(own.begin, own.count);
  const Tensor parts = Parts(x, columns);
  if (parts.empty()) return x.Columns(own.begin, own.count);  // the step has failed
  const Tensor part = parts.Rows(communicator_->rank(), 1);
  return Tensor(part.data, x.dtype, {x.rows(), part.shape[2]}).Columns(0, own.count);
}

void CudaExchange::Gather(const Tensor& x, const Tensor& part, const RankColumns& columns) {
  if (x.rows() == 0) return;
  if (UsesPeers(x, columns)) return peers_->Gather(x, part, columns);
  const Tensor own = Part(x, columns), parts = Parts(x, columns);
  if (parts.empty()) return;
  if (part.data != own.data) CopyRows(own, part, device_->stream());
  communicator_->AllGather(parts);
  PutInPlace(x, parts, columns);
}

void CudaExchange::PutInPlace(const Tensor& x, const Tensor& parts, const RankColumns& columns) {
  const int64_t width = parts.shape[2], bytes = SizeOf(x.dtype);
  const dim3 grid(static_cast<unsigned>(x.rows()), static_cast<unsigned>(parts.rows()));
  PartColumns units = {};
  const auto launch = [&]<class T>(T* out) {
    const auto numbers = static_cast<int64_t>(sizeof(T)) / bytes;
    Launch(device_->queue(), grid, kThreads, PutPartsKernel<T>, out, x.row_stride / numbers,
           static_cast<const T*>(parts.data), width / numbers, units);
  };
  const int64_t wide = int64_t{sizeof(uint4)} / bytes;
  const bool is_wide = InUnits(columns, wide, &units) && width % wide == 0 && HasRowsOf16Bytes(x);
  if (is_wide) return launch(static_cast<uint4*>(x.data));
  InUnits(columns, 1, &units);
  if (bytes == 2) return launch(static_cast<uint16_t*>(x.data));
  launch(static_cast<uint32_t*>(x.data));
}

Tensor CudaExchange::IdsFrom(const Tensor& ids, int64_t first) {
  void* room = Room(&ids_, ids.NumBytes());
  if (room == nullptr) return ids;
  const Tensor out(room, DType::kI32, {ids.rows()});
  Launch(device_->queue(), static_cast<unsigned>((ids.rows() + kThreads - 1) / kThreads), kThreads,
         IdsFromKernel, out.Data<int32_t>(), ids.Data<int32_t>(), ids.rows(),
         static_cast<int32_t>(first));
  return out;
}

}  // namespace tandem
