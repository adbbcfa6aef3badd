#pragma once

// A `tandem serve` of our own, for a measurement: started on a private UNIX socket (a folder of
// mode 0700), ended and cleaned up with the object. It also ends, in order, when this process dies.
// Thread: the one that called Start. Owns: the process and its folder.
//   ASSIGN_OR_RETURN(auto server, OwnServer::Start({"/model", "--max-num-seqs", "64"}, 300));
//   options.base_url = server->base_url();

#include <signal.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "deploy/cli/child_process.h"
#include "deploy/cli/runtime_directory.h"

namespace tandem {

class OwnServer {
 public:
  // args: what would follow `tandem serve`. Returns once the pair is ready. UNAVAILABLE when it
  // ends before that (the message contains the end of its log) or is not ready in time.
  static StatusOr<std::unique_ptr<OwnServer>> Start(const std::vector<std::string>& args,
                                                    double ready_timeout_s);
  ~OwnServer();
  OwnServer(const OwnServer&) = delete;
  OwnServer& operator=(const OwnServer&) = delete;

  std::string base_url() const { return "unix:" + folder_.path() + "/http"; }
  std::string LogTail() const;  // its errors; without any its last lines
  // Whether a signal to this process ends it: what it replies from then on is about that. Any
  // thread.
  bool is_ending() const { return is_ending_; }

 private:
  explicit OwnServer(RuntimeDirectory folder) : folder_(std::move(folder)) {}
  Status WatchSignals();
  void StopWatching();
  void EndAtSignal();
  void StopChild();

  RuntimeDirectory folder_;
  ChildProcess child_;
  std::thread signal_thread_;
  std::atomic<bool> is_ending_{false};
  int signal_fd_ = -1;
  int stop_fd_ = -1;  // an eventfd that ends the thread
  sigset_t mask_before_{};
};

}  // namespace tandem
