#pragma once

// How deep each engine sleeps, shown as vllm:engine_sleep_state, and how deep the next engine of
// its index is to sleep: one that dies in its sleep had given memory to others, and they keep it.
// Calls of sleep and wake_up reach all engines. Level 0 is a pause and no sleep: none of the states
// is 1 then, unless memory was given back before. Thread: any; the numbers are atomic. Borrows the
// metrics.

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

namespace tandem {

struct EngineMetrics;

class SleepLevels {
 public:
  explicit SleepLevels(const std::vector<EngineMetrics*>& engines);

  // All engines sleep, each at the deepest of its levels until it wakes up.
  void OnSleep(int64_t level);
  // They are to wake up. Whether they do is not known yet.
  void OnWakeCall();
  // They have.
  void OnAwake();
  // What one engine says itself; nullopt: it is awake.
  void OnReport(int engine_index, std::optional<int64_t> level);
  // Another engine, which is awake, has the index of one that lives.
  void OnTakeOver(int engine_index);
  // At which level an engine that comes after a death is to sleep; nullopt: it is not.
  std::optional<int64_t> Wanted(int engine_index) const;

 private:
  static constexpr int64_t kAwake = -1;
  struct One {
    EngineMetrics* metrics = nullptr;
    std::atomic<int64_t> level{kAwake};
    std::atomic<int64_t> wanted{kAwake};
  };
  static void Show(One* one, int64_t level);

  std::vector<One> engines_;
};

}  // namespace tandem
