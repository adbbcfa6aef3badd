#pragma once

// Programs that a sweep or a search runs: benches run to their end, servers are always ended with
// all their processes. Thread: main (children die with the thread that started them). Errors:
// CANCELLED after one of those signals, DEADLINE_EXCEEDED, UNAVAILABLE for a program that failed,
// with the end of its log. Times are seconds.

#include <memory>
#include <string>

#include "common/status.h"
#include "deploy/cli/bench/sweep_params.h"
#include "deploy/cli/child_process.h"

namespace tandem {

constexpr int kExitInterrupted = 130;  // after a signal, as a shell has it

// While an instance exists, SIGINT, SIGTERM and SIGHUP only set a flag that all waits here check.
// One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  static bool Seen();
};

// Runs the command to its end. Its output goes to log_path; empty: to our own output.
Status RunCommand(const CommandWords& command, const std::string& log_path, double timeout_s);

// Where a bench command sends its requests: --base-url, else --host and --port.
std::string BenchUrl(const CommandWords& bench_command);

class CommandServer {
 public:
  // Returns once GET /health returns 200. url: http://host:port.
  static StatusOr<std::unique_ptr<CommandServer>> Start(const CommandWords& command,
                                                        const std::string& url,
                                                        const std::string& log_path,
                                                        double ready_timeout_s);
  ~CommandServer();  // SIGTERM to the process group, SIGKILL after a grace
  CommandServer(const CommandServer&) = delete;
  CommandServer& operator=(const CommandServer&) = delete;

 private:
  explicit CommandServer(ChildProcess child) : child_(std::move(child)) {}
  ChildProcess child_;
};

// A TCP port of the loopback interface that was free a moment ago, and that stays so unless
// somebody asks for it: it is below those that the kernel hands out to connections.
StatusOr<int> FreePort();

}  // namespace tandem
