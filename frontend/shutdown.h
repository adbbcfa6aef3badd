#pragma once

// The frontend's signals, and how it ends: SIGTERM or SIGINT, then a drain in stages that each have
// a time limit; or after another process has taken over. Other signals end nothing. Thread: main,
// except that signals are read on a shard.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/mailbox.h"
#include "common/status.h"
#include "frontend/net/net.h"

namespace tandem {

class EngineClient;
class HttpServer;

// Blocks the signals for this thread and all that it starts from now on. Returns the descriptor
// that reports them.
StatusOr<int> OpenSignals();

enum class ShutdownEvent {
  kSignal,
  kRetired,  // another process serves
  kDrained,
};

// Passes SIGTERM and SIGINT on to the thread that waits for the end, and calls functions on the
// shard for the others.
class ProcessSignals {
 public:
  struct Calls {
    std::function<void()> reload;     // SIGHUP
    std::function<void()> log_state;  // SIGUSR1
    std::function<void()> hand_over;  // SIGUSR2
  };

  // fd: from OpenSignals; owned from now on. REQUIRES: the shard has not started and outlives this.
  ProcessSignals(Shard* shard, int fd, Calls calls);
  ProcessSignals(const ProcessSignals&) = delete;

  Mailbox<ShutdownEvent>& events() { return events_; }

 private:
  void Watch();
  void Handle(uint32_t signal);

  const Calls calls_;
  Mailbox<ShutdownEvent> events_;
  Socket socket_;
};

// Returns when the process is to end. True: a signal came, and Drain is to follow. False: the
// server has retired, and its last connection has ended.
bool WaitForEnd(HttpServer* server, Mailbox<ShutdownEvent>* events);

// Lets running requests finish for up to timeout_s or until another signal, then ends them with an
// error that their clients can read, then cuts the connections of clients that do not read.
// Returns early once the server has drained.
void Drain(HttpServer* server, const std::vector<std::unique_ptr<EngineClient>>& clients,
           double timeout_s, Mailbox<ShutdownEvent>* events);

}  // namespace tandem
