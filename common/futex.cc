#include "common/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace tandem {
namespace {

static_assert(sizeof(FutexWord) == sizeof(uint32_t) && FutexWord::is_always_lock_free);

}  // namespace

void FutexWait(const FutexWord& word, uint32_t expected, int timeout_ms) {
  const timespec limit = {timeout_ms / 1000, long{timeout_ms % 1000} * 1000000};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, timeout_ms < 0 ? nullptr : &limit, nullptr, 0);
}

void FutexWakeAll(FutexWord& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void WaitForChange(const FutexWord& word, uint32_t value, const FutexWord& lost) {
  while (word.load(std::memory_order_acquire) == value && lost.load() == 0) {
    FutexWait(word, value, kFutexPatienceMs);
  }
}

}  // namespace tandem
