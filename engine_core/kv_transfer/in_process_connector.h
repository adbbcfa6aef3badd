#pragma once

// A KvConnector with its worker's half: both are in the engine's process. Thread: engine loop; what
// takes time runs on threads of its own.

#include <cstdint>
#include <deque>
#include <functional>
#include <string_view>
#include <utility>

#include "engine_core/scheduler/kv_connector.h"

namespace tandem {

class InProcessConnector : public KvConnector {
 public:
  // vLLM's name of the class, of one that has statistics.
  virtual std::string_view name() const { return {}; }
  // A step has been submitted; the result of the oldest one has been collected.
  virtual void OnSubmit() { ++num_submitted_; }
  virtual void OnCollect();
  // Appends what has ended since the last call.
  virtual void Report(KvTransferReport* report) = 0;
  // Whether something is under way.
  virtual bool is_busy() const = 0;
  // While something is: sleeps until it has ended, or for at most 1 ms.
  virtual void WaitBriefly() = 0;

 protected:
  // Begins a load when the steps in flight have run: they may still write to blocks that a request
  // has lost and the load fills.
  void BeginAfterSteps(std::function<void()> begin);

 private:
  struct Deferred {
    int64_t num_steps = 0;
    std::function<void()> begin;
  };
  int64_t num_submitted_ = 0;
  int64_t num_collected_ = 0;
  std::deque<Deferred> deferred_;
};

inline void InProcessConnector::BeginAfterSteps(std::function<void()> begin) {
  if (num_collected_ == num_submitted_) return begin();
  deferred_.push_back({num_submitted_, std::move(begin)});
}

inline void InProcessConnector::OnCollect() {
  ++num_collected_;
  while (!deferred_.empty() && deferred_.front().num_steps <= num_collected_) {
    deferred_.front().begin();
    deferred_.pop_front();
  }
}

}  // namespace tandem
