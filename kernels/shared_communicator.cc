#include "kernels/shared_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tandem {
namespace {

int64_t Pages(int64_t bytes) {
  return (bytes + SharedMemory::kPageBytes - 1) / SharedMemory::kPageBytes *
         SharedMemory::kPageBytes;
}

std::byte* BytesOf(const Tensor& x) { return static_cast<std::byte*>(x.data); }

float Load(const std::byte* from, int64_t i, DType dtype) {
  return dtype == DType::kF32 ? reinterpret_cast<const float*>(from)[i]
                              : ToFloat(reinterpret_cast<const Bf16*>(from)[i]);
}

void Store(std::byte* to, int64_t i, DType dtype, float value) {
  if (dtype == DType::kF32) {
    reinterpret_cast<float*>(to)[i] = value;
  } else {
    reinterpret_cast<Bf16*>(to)[i] = ToBf16(value);
  }
}

}  // namespace

StatusOr<std::unique_ptr<SharedCommunicator>> SharedCommunicator::Create(const Place& place,
                                                                         int rank, int size,
                                                                         int spins,
                                                                         const WaitMark& mark) {
  std::unique_ptr<SharedCommunicator> ranks(new SharedCommunicator(place, rank, size, spins, mark));
  ASSIGN_OR_RETURN(ranks->words_memory_, ranks->MapNext(sizeof(Words)));
  ranks->words_ = reinterpret_cast<Words*>(ranks->words_memory_.get());
  ASSIGN_OR_RETURN(ranks->chunks_, ranks->MapNext(2 * size * kChunkBytes));
  ranks->tensors_begin_ = ranks->end_;
  return ranks;
}

StatusOr<SharedMemory::Mapping> SharedCommunicator::MapNext(int64_t bytes) {
  ASSIGN_OR_RETURN(SharedMemory::Mapping mapping, place_.memory->Map(end_, bytes));
  end_ += Pages(bytes);
  return mapping;
}

StatusOr<OwnedTensor> SharedCommunicator::Allocate(DType dtype,
                                                   std::initializer_list<int64_t> shape) {
  Tensor view(nullptr, dtype, shape);
  ASSIGN_OR_RETURN(SharedMemory::Mapping mapping, MapNext(std::max<int64_t>(view.NumBytes(), 1)));
  view.data = mapping.get();
  const SharedMemory::Unmap unmap = mapping.get_deleter();
  OwnedTensor::Memory memory(mapping.release(),
                             [unmap](void* m) { unmap(static_cast<std::byte*>(m)); });
  return OwnedTensor(std::move(memory), view);
}

Status SharedCommunicator::ForgetTensors() {
  if (end_ == tensors_begin_) return OkStatus();
  return place_.memory->Release(tensors_begin_,
                                std::exchange(end_, tensors_begin_) - tensors_begin_);
}

// The last to come opens the gate. A rank that sleeps counted itself before it looked for the last
// time, so that a wake-up is asked for only where it is needed.
void SharedCommunicator::Meet() {
  const uint32_t generation = words_->generation.load(std::memory_order_relaxed);
  if (words_->num_arrived.fetch_add(1) + 1 == static_cast<uint32_t>(size())) {
    words_->num_arrived.store(0, std::memory_order_relaxed);
    words_->generation.fetch_add(1);
    if (words_->num_asleep.load() > 0) FutexWakeAll(words_->generation);
    return;
  }
  for (int i = 0; i < spins_; ++i) {
    if (words_->generation.load(std::memory_order_acquire) != generation) return;
    CpuRelax();
  }
  mark_.Begin();
  words_->num_asleep.fetch_add(1);
  WaitForChange(words_->generation, generation, words_->lost);
  words_->num_asleep.fetch_sub(1);
  mark_.End();
}

std::byte* SharedCommunicator::Chunk(int r) const {
  return chunks_.get() + (chunk_set_ * size() + r) * kChunkBytes;
}

Tensor SharedCommunicator::IdsFrom(const Tensor& ids, int64_t first) {
  const auto* from = ids.Data<int32_t>();
  ids_.resize(std::max(ids_.size(), static_cast<size_t>(ids.rows())));
  std::transform(from, from + ids.rows(), ids_.begin(),
                 [first](int32_t id) { return id - static_cast<int32_t>(first); });
  return Tensor(ids_.data(), DType::kI32, {ids.rows()});
}

void SharedCommunicator::AllReduce(const Tensor& x) {
  CheckAdded(x);
  const int64_t element = SizeOf(x.dtype), count = x.NumElements();
  for (int64_t begin = 0; begin < count; begin += kChunkBytes / element) {
    const int64_t n = std::min(count - begin, kChunkBytes / element);
    std::byte* own = BytesOf(x) + begin * element;
    std::memcpy(Chunk(rank()), own, static_cast<size_t>(n * element));
    Meet();
    for (int64_t i = 0; i < n; ++i) {
      float sum = Load(Chunk(0), i, x.dtype);
      for (int r = 1; r < size(); ++r) sum += Load(Chunk(r), i, x.dtype);
      Store(own, i, x.dtype, sum);
    }
    EndExchange();
  }
}

void SharedCommunicator::AllGather(const Tensor& x) {
  CheckGathered(x);
  const int64_t row_bytes = x.NumBytes() / size();
  const auto part = [&](int r, int64_t begin) { return BytesOf(x) + r * row_bytes + begin; };
  for (int64_t begin = 0; begin < row_bytes; begin += kChunkBytes) {
    const auto bytes = static_cast<size_t>(std::min(row_bytes - begin, kChunkBytes));
    std::memcpy(Chunk(rank()), part(rank(), begin), bytes);
    Meet();
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) std::memcpy(part(r, begin), Chunk(r), bytes);
    }
    EndExchange();
  }
}

void SharedCommunicator::Broadcast(const Tensor& x, int root) {
  CheckExchanged(x);
  CheckRoot(root);
  for (int64_t begin = 0; begin < x.NumBytes(); begin += kChunkBytes) {
    const auto bytes = static_cast<size_t>(std::min(x.NumBytes() - begin, kChunkBytes));
    if (rank() == root) std::memcpy(Chunk(root), BytesOf(x) + begin, bytes);
    Meet();
    if (rank() != root) std::memcpy(BytesOf(x) + begin, Chunk(root), bytes);
    EndExchange();
  }
}

Status SharedCommunicator::status() {
  if (words_->lost.load() == 0) return OkStatus();
  return UnavailableError("another rank of the model is lost");
}

void SharedCommunicator::Abandon() {
  words_->lost.store(1);
  FutexWakeAll(words_->generation);
}

}  // namespace tandem
