#pragma once

// A thread that does jobs in the order of Push. Push from one thread. Jobs that have not begun when
// this goes are dropped; the one under way is waited for.

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "common/log.h"
#include "common/mailbox.h"

namespace tandem {

template <class Job>
class JobThread {
 public:
  // `run` runs on the thread; what it uses must outlive this. name: as SetThreadName takes it.
  JobThread(const char* name, std::function<void(Job job)> run)
      : run_(std::move(run)), thread_([this, name] { Run(name); }) {}
  ~JobThread() {
    Close();
    thread_.join();
  }
  JobThread(const JobThread&) = delete;

  void Push(Job job) { jobs_.Push(std::move(job)); }
  // No further job begins. Several threads can so end side by side.
  void Close() { jobs_.Close(); }

 private:
  void Run(const char* name) {
    SetThreadName(name);
    std::vector<Job> jobs;
    while (!jobs_.closed()) {
      jobs_.Wait();
      jobs_.Drain(&jobs);
      for (Job& job : jobs) {
        if (jobs_.closed()) return;
        run_(std::move(job));
      }
    }
  }

  const std::function<void(Job job)> run_;
  Mailbox<Job> jobs_;
  std::thread thread_;
};

}  // namespace tandem
