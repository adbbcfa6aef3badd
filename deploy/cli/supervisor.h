#pragma once

// Starts a frontend and its engine cores, or engine cores alone, and keeps all running until a
// signal ends them.
// - A process that ends before all were ready ends everything, with its exit status: a wrong
//   flag, a broken model or a port in use shows at once.
// - A process that dies later is started again (restart_policy.h). One that cannot start any more
//   ends everything with status 1; but an engine core beside which others serve is tried again.
// - A process that gives no sign of life for hang_s is killed, and so started again; unless a
//   debugger holds it.
// - SIGTERM or SIGINT: the frontend is signalled first, so that it can drain; then the engines. A
//   second signal that is not sent along with the first, or stop_s without an end, kills all. Exit
//   status 0.
// - A swap or a reload (control_socket.h; SIGUSR2 is a reload): a second engine core or frontend is
//   started and takes over from the first, which then ends by itself. If the second one ends before
//   that, or its asker does, the first one stays; also if it has loaded its model and the first
//   engine core has not been let go twice hang_s later. Several engine cores are replaced one after
//   another, each once the one before has ended; where one cannot be, it and those after it stay.
// - SIGHUP and SIGUSR1 are passed on to all; but SIGHUP from a terminal that was closed is an end.
// - Orphans: the first process of a container becomes the parent of what a killed process has
//   started, and reaps it.
// - Readiness: all report to a socket of ours as they would to systemd; the frontend's READY=1 is
//   passed on, without a frontend the last engine core's.
// Thread: one; nothing else runs in this process. Owns: the folder of its sockets.

#include <sys/types.h>

#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "deploy/cli/beat_watch.h"
#include "deploy/cli/child_process.h"
#include "deploy/cli/control_socket.h"
#include "deploy/cli/restart_policy.h"
#include "deploy/cli/runtime_directory.h"

namespace tandem {

class Supervisor {
 public:
  struct Program {
    std::string name;  // for the log
    std::vector<std::string> argv;
    std::vector<std::string> environment = {};  // besides ours: "NAME=value"
    std::vector<std::string> words = {};        // its flags as they were given
  };
  // A program that takes over from this one, with other flags; or why there is none. `directory`:
  // the asker's.
  using ChangedProgram = std::function<StatusOr<Program>(
      const Program& now, const std::vector<std::string>& changes, const std::string& directory)>;

  struct Timeouts {
    double stop_s = 0;
    double hang_s = 0;  // 0: nobody is watched
  };

  // frontend: nullopt where it is elsewhere.
  Supervisor(RuntimeDirectory runtime_directory, std::optional<Program> frontend,
             std::vector<Program> engine_cores, ChangedProgram changed_frontend,
             ChangedProgram changed_engine, Timeouts timeouts);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Returns the exit status for main; a Status when they could not be watched.
  StatusOr<int> Run();

 private:
  struct Member {
    Program program;
    ChildProcess child;
    bool is_frontend = false;
    bool is_ready = false;  // since its last start
    bool is_stopping = false;
    std::string status = {};  // what it reported last
    BeatWatch beats;
    RestartPolicy restarts = {};
    std::optional<double> start_again_at = {};  // when a restart is due
  };
  // A process that takes another one's place, or has lost its place, and who asked for it.
  struct Replacement {
    Member member;
    size_t place = 0;                       // in members_
    std::vector<size_t> places_after = {};  // whose turn comes next
    std::optional<ControlRequest> asker = {};
    std::optional<double> give_up_at = {};
    bool is_given_up = false;
  };

  Status OpenDescriptors();
  // Those of members_, then those that are about to take over, and those that leave.
  std::vector<Member*> Members();
  Member* MemberOf(pid_t pid);
  bool AnyRuns();
  Status StartMember(Member& member);
  void StartDueMembers();
  int PollTimeoutMs();
  void OnSignal();
  void OnSignal(int signal, double now);
  void OnNotify();
  void OnNotice(Member& member, std::string_view line);
  void OnReady(Member& member);
  void LookForBeats();
  void ReapOrphans();
  void OnExit(pid_t pid);
  void OnExit(Member& member);
  void PlanRestart(Member& member);
  bool IsAnotherEngineReady(const Member& member) const;
  bool IsAllReady() const;
  void Stop(int exit_code);
  void AdvanceStop();
  static void StopMember(Member& member);
  void KillAll();

  static std::string_view Tag(const Member& member);  // of log lines about its replacement
  void OnControl();
  void BeginReplacement(bool of_frontend, std::optional<ControlRequest> asker);
  std::optional<std::string> WhyNotNow(bool of_frontend);
  std::string WhatWasReplaced(const Member& failed, const std::vector<size_t>& places_after) const;
  bool IsServing(const Member& member) const { return member.is_ready && member.child.running(); }
  void StartReplacement(std::vector<size_t> places, std::optional<ControlRequest> asker);
  void CompleteReplacement();
  void EndReplacement(std::vector<size_t> places_after, std::optional<ControlRequest> asker,
                      const std::string& line);
  void GiveUpReplacement(std::string_view why);
  bool is_to_follow(const Member& member) const;
  void OnNextExit(const ChildProcess::Exit& exit);
  void OnLeavingExit(const Member& member, const ChildProcess::Exit& exit);

  const RuntimeDirectory runtime_directory_;  // of their sockets
  const Timeouts timeouts_;
  const bool had_terminal_;
  const ChangedProgram changed_frontend_, changed_engine_;
  std::vector<Member> members_;      // the frontend, if it is here, and the engine cores
  std::optional<Replacement> next_;  // is to take over from the member in its place
  std::list<Replacement> leaving_;   // were taken over from
  ControlSocket control_;
  SystemClock clock_;
  double started_at_ = 0;
  int signal_fd_ = -1;
  int notify_fd_ = -1;
  bool ready_ = false;
  std::optional<int> exit_code_;        // set once stopping
  std::optional<double> end_asked_at_;  // by the first signal
  std::optional<double> kill_at_;       // then what still runs is killed
};

}  // namespace tandem
