#pragma once

// A bounded queue in shared memory from one writer to several readers, of which each gets every
// record, in order and in place: nothing is copied per reader. A slot is written again once all
// readers have released it, so the slowest reader stops the writer after num_slots records. Waits
// spin for some microseconds, then sleep on a futex: an idle ring uses no CPU.
// The semantics are those of vLLM's MessageQueue; memory layout and wake-up are our own: numbers of
// records instead of flags per slot, and no second channel for what sleeps.
//
// Thread: one writer, one thread per reader, each in a process of its own or not. Ownership: the
// memory is the caller's, zeros at first, 64-byte aligned, mapped by all of them.
// Failure: a reader that has died never releases its slots. A watcher that sees it calls Abandon,
// and every wait ends; the ring cannot be used again.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/futex.h"
#include "common/wait_mark.h"

namespace tandem {

struct RingShape {
  int num_readers = 0;
  int num_slots = 0;
  int64_t slot_bytes = 0;  // of the largest record
};

class BroadcastRing {
 public:
  static int64_t BytesOf(const RingShape& shape);
  // Over BytesOf(shape) bytes. `spins`: futex.h. `mark`: of this process's sleeps here.
  BroadcastRing(const RingShape& shape, std::byte* memory, int spins = kFutexSpins,
                const WaitMark& mark = {});

  // ---- the writer ----
  // The memory of the next record, slot_bytes of it, once it is free; empty: abandoned.
  std::span<std::byte> BeginWrite();
  // The first `bytes` of it are the record, which readers may take now.
  void EndWrite(int64_t bytes);

  // ---- reader r of num_readers ----
  // Its next record, once there is one; empty: abandoned. Valid until Release.
  std::span<const std::byte> Read(int reader);
  void Release(int reader);

  // ---- any thread or process ----
  void Abandon();
  bool abandoned() const { return control_->lost.load() != 0; }
  // Records written, and those that a reader has released; modulo 2^32.
  uint32_t num_written() const { return control_->written.word.load(std::memory_order_acquire); }
  uint32_t num_released(int reader) const {
    return released_[reader].word.load(std::memory_order_acquire);
  }

 private:
  // A count that one side writes and others wait for. They sleep on the bell, which is also rung
  // when the ring is abandoned.
  struct alignas(64) Count {
    FutexWord word{0};
    FutexWord bell{0};
    FutexWord num_asleep{0};
  };
  struct Control {
    Count written;
    FutexWord lost{0};
  };

  static void Advance(Count* count);
  static void Ring(Count* count);
  // Waits until the count is not `value`.
  void AwaitChange(Count* count, uint32_t value) const;
  std::byte* Slot(uint32_t number) const;

  RingShape shape_;
  int spins_;
  WaitMark mark_;
  Control* control_;
  Count* released_;  // by reader
  int64_t* sizes_;   // by slot
  std::byte* slots_;
};

}  // namespace tandem
