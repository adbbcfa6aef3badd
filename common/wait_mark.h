#pragma once

// What a thread sleeps for, in a word that another thread or process reads: a kind, and the number
// of the sleep, by which two looks know whether they saw the same one. Thread: Begin and End on the
// one that sleeps, the readers any. Borrows the word, zero at first, which several marks of one
// thread may share.

#include <atomic>
#include <cstdint>

namespace tandem {

using WaitWord = std::atomic<uint64_t>;

class WaitMark {
 public:
  WaitMark() = default;  // nobody reads it
  // kind: not 0.
  WaitMark(WaitWord* word, uint8_t kind) : word_(word), kind_(kind) {}

  void Begin() const {
    if (word_ != nullptr) Set(((word_->load(std::memory_order_relaxed) | kKindMask) + 1) | kind_);
  }
  void End() const {
    if (word_ != nullptr) Set(word_->load(std::memory_order_relaxed) & ~kKindMask);
  }

  // 0: the thread does not sleep.
  static uint8_t KindOf(uint64_t word) { return static_cast<uint8_t>(word & kKindMask); }

 private:
  static constexpr uint64_t kKindMask = 0xff;
  void Set(uint64_t value) const { word_->store(value, std::memory_order_relaxed); }

  WaitWord* word_ = nullptr;
  uint8_t kind_ = 0;
};

}  // namespace tandem
