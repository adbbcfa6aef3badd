#pragma once

// Sleeping until a word changes that several processes have mapped. (std::atomic::wait reaches the
// threads of one process alone.) Thread: any. A wait may end for no reason: callers look again.

#include <atomic>
#include <cstdint>

namespace tandem {

using FutexWord = std::atomic<uint32_t>;

// Sleeps while *word == expected, at most timeout_ms (-1: for ever).
void FutexWait(const FutexWord& word, uint32_t expected, int timeout_ms = -1);
void FutexWakeAll(FutexWord& word);

// Lets the other thread of a core run between two looks at a word.
inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// How often a wait looks at its word before it sleeps: for the time in which threads that run at
// once mostly meet, about 20 us. 0 where they have too few CPUs to run at once.
constexpr int kFutexSpins = 1000;

// Sleeps until *word != value. Returns at once when *lost is set, and within kFutexPatienceMs when
// it is set later: for waits that do not last.
constexpr int kFutexPatienceMs = 50;
void WaitForChange(const FutexWord& word, uint32_t value, const FutexWord& lost);

}  // namespace tandem
