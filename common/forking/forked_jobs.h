#pragma once

// Has a helper program do jobs, a few at a time, each in a process of its own
// (forking_program.h), and starts the program again when it dies.
// A process that was stopped or waits for ever is noticed, since it does nothing, and is killed.
// Thread: its own; Submit from any. `done` is called once per job, on that thread, and must only
// post. Owns: the program, and the sockets of jobs until they are done.
// Failure: of a job is its result: INVALID_ARGUMENT where its process said what is wrong; the
// texts of the options where it said nothing; INTERNAL when the program cannot serve.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/forking/helper_process.h"
#include "common/forking/process_rest.h"
#include "common/mailbox.h"
#include "common/packets.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem {

struct ForkedJobsOptions {
  std::vector<std::string> command;  // the program's path, then its arguments
  std::vector<int> fds;              // for the program, after the control socket; borrowed
  const char* thread_name = "";
  int max_running = 2;
  double timeout_s = 60;    // of waiting, and of running; the wall clock, for an overloaded host
  double begin_s = 10;      // until a job has its process; then the program hangs
  double rest_s = 5;        // in which a job's process does nothing; the job is tried once more
  std::string unavailable;  // what is not there without the program: "structured outputs are …"
  Status kept_waiting;      // a job whose turn did not come in time
  Status overdue;           // one that ran for too long
  Status resting;           // one whose processes did nothing, twice
  Status killed;            // one whose processes ended without a word, again and again
};

// The first packet of a job's process, and its end of the socket, which keeps the process alive
// where it has more to do.
struct ForkedJobResult {
  Packet packet;
  UniqueFd socket;
};

class ForkedJobs {
 public:
  using Done = std::function<void(StatusOr<ForkedJobResult>)>;

  ForkedJobs(ForkedJobsOptions options, const Clock* clock);
  ~ForkedJobs();  // jobs that are not done are dropped: their `done` is never called
  // head: a short text; input: becomes a memory file. is_wanted: asked on this class's thread
  // before the job is started and now and then while it runs; false: the job ends with CANCELLED,
  // and its process finds its socket closed. None: it is.
  void Submit(std::string head, std::string input, Done done,
              std::function<bool()> is_wanted = nullptr);
  // Calls `noticed` once, when the socket of a job that is done can be read or is closed by its
  // process, or after timeout_s. It only looks.
  void Watch(std::shared_ptr<UniqueFd> socket, double timeout_s, std::function<void()> noticed);

 private:
  struct Watched {
    std::shared_ptr<UniqueFd> socket;
    double deadline = 0;
    std::function<void()> noticed;
  };
  struct Job {
    std::string head, input;
    Done done;
    std::function<bool()> is_wanted;
    UniqueFd socket;  // while it runs
    double deadline = 0;
    std::optional<ProcessRest> process;  // once it has begun, where the kernel shows it
    double look_at = 0;
    int num_rests = 0;  // processes that did nothing
    int num_attempts = 0;
    bool has_begun = false;
  };

  void Run();
  void TakeJobs();
  void StartProgram();
  void StartJobs();
  void EndUnwanted();
  void StartAgain(Job* job, const Status& otherwise);
  Status Send(Job* job);
  void Poll();
  void HearProgram();
  void HearJob(Job* job);
  void EndResting();
  static void EndProcess(Job* job);
  bool Rests(Job* job, double now) const;
  void EndOverdue();
  void LoseProgram();
  static void End(Job* job, StatusOr<ForkedJobResult> result);
  int TimeoutMs() const;

  ForkedJobsOptions options_;
  std::string program_name_;
  const Clock* clock_;
  UniqueFd wake_;  // an eventfd
  Mailbox<Job> jobs_;
  Mailbox<Watched> new_watches_;
  std::optional<HelperProcess> program_;
  bool is_ready_ = false;
  double start_after_ = 0;        // a program that dies at once is not started at once
  Status broken_;                 // why the program can never serve
  bool lacks_resources_ = false;  // the last start failed for want of them
  std::deque<Job> waiting_;
  std::vector<Job> running_;
  std::vector<Watched> watched_;
  std::thread thread_;
};

}  // namespace tandem
