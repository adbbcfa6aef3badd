#include "common/broadcast_ring.h"

#include "common/check.h"

namespace tandem {
namespace {

constexpr int64_t kAlign = 64;

int64_t Aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

int64_t SlotStride(const RingShape& shape) { return Aligned(shape.slot_bytes); }

}  // namespace

int64_t BroadcastRing::BytesOf(const RingShape& shape) {
  return Aligned(sizeof(Control)) + shape.num_readers * int64_t{sizeof(Count)} +
         Aligned(shape.num_slots * int64_t{sizeof(int64_t)}) + shape.num_slots * SlotStride(shape);
}

BroadcastRing::BroadcastRing(const RingShape& shape, std::byte* memory, int spins,
                             const WaitMark& mark)
    : shape_(shape), spins_(spins), mark_(mark) {
  CHECK(shape.num_slots > 0 && shape.num_readers >= 0 && shape.slot_bytes > 0);
  CHECK_EQ(reinterpret_cast<uintptr_t>(memory) % kAlign, 0u);
  control_ = reinterpret_cast<Control*>(memory);
  memory += Aligned(sizeof(Control));
  released_ = reinterpret_cast<Count*>(memory);
  memory += shape.num_readers * int64_t{sizeof(Count)};
  sizes_ = reinterpret_cast<int64_t*>(memory);
  slots_ = memory + Aligned(shape.num_slots * int64_t{sizeof(int64_t)});
}

std::byte* BroadcastRing::Slot(uint32_t number) const {
  return slots_ + number % static_cast<uint32_t>(shape_.num_slots) * SlotStride(shape_);
}

std::span<std::byte> BroadcastRing::BeginWrite() {
  const uint32_t number = num_written();
  for (int reader = 0; reader < shape_.num_readers; ++reader) {
    for (;;) {
      if (abandoned()) return {};
      const uint32_t released = num_released(reader);
      if (number - released < static_cast<uint32_t>(shape_.num_slots)) break;
      AwaitChange(&released_[reader], released);
    }
  }
  return {Slot(number), static_cast<size_t>(shape_.slot_bytes)};
}

void BroadcastRing::EndWrite(int64_t bytes) {
  CHECK(bytes > 0 && bytes <= shape_.slot_bytes) << bytes << " of " << shape_.slot_bytes;
  sizes_[num_written() % static_cast<uint32_t>(shape_.num_slots)] = bytes;
  Advance(&control_->written);
}

std::span<const std::byte> BroadcastRing::Read(int reader) {
  CHECK(reader >= 0 && reader < shape_.num_readers) << reader;
  const uint32_t number = num_released(reader);
  while (num_written() == number) {
    if (abandoned()) return {};
    AwaitChange(&control_->written, number);
  }
  const int64_t bytes = sizes_[number % static_cast<uint32_t>(shape_.num_slots)];
  return {Slot(number), static_cast<size_t>(bytes)};
}

void BroadcastRing::Release(int reader) {
  CHECK(num_released(reader) != num_written()) << "nothing was read";
  Advance(&released_[reader]);
}

void BroadcastRing::Advance(Count* count) {
  count->word.fetch_add(1);
  Ring(count);
}

// A sleeper counts itself before it looks for the last time, so either it sees what has changed or
// it is seen here.
void BroadcastRing::Ring(Count* count) {
  count->bell.fetch_add(1);
  if (count->num_asleep.load() > 0) FutexWakeAll(count->bell);
}

void BroadcastRing::AwaitChange(Count* count, uint32_t value) const {
  for (int i = 0; i < spins_; ++i) {
    if (count->word.load(std::memory_order_acquire) != value || abandoned()) return;
    CpuRelax();
  }
  mark_.Begin();
  count->num_asleep.fetch_add(1);
  const uint32_t bell = count->bell.load();
  if (count->word.load() == value && !abandoned()) FutexWait(count->bell, bell);
  count->num_asleep.fetch_sub(1);
  mark_.End();
}

void BroadcastRing::Abandon() {
  control_->lost.store(1);
  Ring(&control_->written);
  for (int reader = 0; reader < shape_.num_readers; ++reader) Ring(&released_[reader]);
}

}  // namespace tandem
