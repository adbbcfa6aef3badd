#include "engine_core/executor/step_watch.h"

#include <algorithm>

namespace tandem {

std::string WatchedStep::ToString() const {
  if (!RunsStep(call)) {
    return call == ExecutorCall::kRelease ? "memory is released" : "memory is taken again";
  }
  std::string text = "step " + std::to_string(number);
  text += call == ExecutorCall::kSubmit ? " in Submit: " : " in Collect: ";
  text += std::to_string(num_requests) + " requests";
  if (num_new_requests > 0) text += " (" + std::to_string(num_new_requests) + " of them new)";
  return text + ", " + std::to_string(num_tokens) + " tokens";
}

// The fields are released one by one so that a watcher that reads a later step's field also sees
// that num_changes_ has moved on.
bool StepWatch::Enter(const WatchedStep& step) {
  number_.store(step.number, std::memory_order_release);
  num_requests_.store(step.num_requests, std::memory_order_release);
  num_new_requests_.store(step.num_new_requests, std::memory_order_release);
  num_tokens_.store(step.num_tokens, std::memory_order_release);
  call_.store(step.call, std::memory_order_release);
  num_changes_.store(num_changes_.load(std::memory_order_relaxed) + 1);
  return watcher_sleeps_.load() && watcher_sleeps_.exchange(false);
}

void StepWatch::Leave() {
  num_changes_.store(num_changes_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

double StepWatch::PauseSeconds() const {
  const double slice_s = limit_s_ / kLooksPerLimit;
  if (pause_s_ == 0 || limit_s_ == 0) return std::max(pause_s_, slice_s);
  return std::min(pause_s_, slice_s);
}

StepWatch::Look StepWatch::LookNow(double now) {
  uint64_t num_changes = num_changes_.load();
  if (num_changes % 2 == 0) {
    // If a call begins now, either the next load sees it or its Enter sees the sleeper.
    watcher_sleeps_.store(true);
    num_changes = num_changes_.load();
    if (num_changes % 2 == 0) return {};
    watcher_sleeps_.store(false);
  }
  const bool lasts = num_changes == seen_;
  const double slice_s = limit_s_ / kLooksPerLimit;
  watched_s_ = lasts ? watched_s_ + std::min(now - seen_at_, slice_s) : 0;
  seen_ = num_changes;
  seen_at_ = now;
  Look look = {.again_in_s = PauseSeconds()};
  if (!lasts) return look;
  const WatchedStep step = {.number = number_.load(std::memory_order_acquire),
                            .num_requests = num_requests_.load(std::memory_order_acquire),
                            .num_new_requests = num_new_requests_.load(std::memory_order_acquire),
                            .num_tokens = num_tokens_.load(std::memory_order_acquire),
                            .call = call_.load(std::memory_order_acquire)};
  if (num_changes_.load() != num_changes) return look;
  look.lasting = step;
  if (limit_s_ > 0 && RunsStep(step.call) && watched_s_ >= limit_s_) look.overdue = step;
  return look;
}

}  // namespace tandem
