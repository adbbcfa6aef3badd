#include "common/thread_room.h"

#include <pthread.h>

#include <atomic>
#include <string>
#include <vector>

namespace tandem {
namespace {

void* WaitForEnd(void* is_over) {
  static_cast<std::atomic<bool>*>(is_over)->wait(false);
  return nullptr;
}

}  // namespace

// All at once, as they will run.
Status CheckThreadRoom(int num_threads) {
  std::atomic<bool> is_over{false};
  std::vector<pthread_t> started;
  for (int i = 0; i < num_threads; ++i) {
    pthread_t thread{};
    if (pthread_create(&thread, nullptr, WaitForEnd, &is_over) != 0) break;
    started.push_back(thread);
  }
  is_over = true;
  is_over.notify_all();
  for (const pthread_t thread : started) pthread_join(thread, nullptr);
  if (static_cast<int>(started.size()) == num_threads) return OkStatus();
  return ResourceExhaustedError(
      "this process may start " + std::to_string(started.size()) + " more threads, and needs " +
      std::to_string(num_threads) +
      " (ulimit -u, TasksMax= of a unit, the limit on processes of a container)");
}

}  // namespace tandem
