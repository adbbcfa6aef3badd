#pragma once

// How many requests an engine has: its own newest report, and those that the frontend has sent to
// it and that the report does not contain. A request counts from the moment it is sent, also when
// the engine is stopped or dead. Thread: any (atomics).

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace tandem {

class EngineLoad {
 public:
  struct View {
    int64_t running = 0;
    int64_t waiting = 0;   // deferred ones included
    int64_t deferred = 0;  // wait for something besides room
  };

  void Report(int64_t running, int64_t waiting, int64_t deferred) {
    running_ = running;
    waiting_ = waiting;
    deferred_ = deferred;
  }
  View Read() const {
    const int64_t running = running_, deferred = deferred_;
    const int64_t reported = waiting_ + deferred;
    return {running, std::max(reported, unfinished_ - running), deferred};
  }

 private:
  friend class UnfinishedRequest;
  std::atomic<int64_t> unfinished_{0};  // of all shards
  std::atomic<int64_t> running_{0};
  std::atomic<int64_t> waiting_{0};
  std::atomic<int64_t> deferred_{0};
};

// Counts one request while it lives and has not ended. The load must outlive it.
class UnfinishedRequest {
 public:
  explicit UnfinishedRequest(EngineLoad* load) : load_(load) { ++load_->unfinished_; }
  ~UnfinishedRequest() { End(); }
  UnfinishedRequest(const UnfinishedRequest&) = delete;

  void MoveTo(EngineLoad* load) {
    if (load_ == nullptr) return;
    --std::exchange(load_, load)->unfinished_;
    ++load_->unfinished_;
  }
  void End() {
    if (load_ != nullptr) --std::exchange(load_, nullptr)->unfinished_;
  }

 private:
  EngineLoad* load_;
};

}  // namespace tandem
