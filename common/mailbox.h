#pragma once

// A queue between threads: many push, one drains everything at once by swapping vectors, so there
// is one lock per batch and no allocation once both vectors have grown. Thread: Push and Close from
// any thread; Drain, Wait* from the one owner. The owner is woken by a condition variable (Wait) or
// by the `wake` callback of the constructor, which runs on the pushing thread after a push into an
// empty box and must only post.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace tandem {

template <class T>
class Mailbox {
 public:
  Mailbox() = default;
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void Push(T item) {
    bool was_empty;
    {
      std::lock_guard lock(mutex_);
      was_empty = items_.empty();
      items_.push_back(std::move(item));
    }
    if (was_empty) Wake();
  }

  // After Close, Wait returns at once. Items already pushed can still be drained.
  void Close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    Wake();
  }

  // Moves everything pushed so far into *out (cleared first). False when the box was empty.
  bool Drain(std::vector<T>* out) {
    out->clear();
    std::lock_guard lock(mutex_);
    items_.swap(*out);
    return !out->empty();
  }

  // Sleeps until something is pushed or the box is closed.
  void Wait() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !items_.empty() || closed_; });
  }

  // The same with a limit; false when it ran out.
  bool WaitFor(std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    return ready_.wait_for(lock, limit, [this] { return !items_.empty() || closed_; });
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  void Wake() {
    ready_.notify_one();
    if (wake_) wake_();
  }

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<T> items_;
  bool closed_ = false;
  std::function<void()> wake_;
};

}  // namespace tandem
