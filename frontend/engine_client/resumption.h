#pragma once

// Requests go on after the death of their engine, or when another one takes over from it: which of
// them, when, in which order, and until when they may wait. The rules for one request are in
// resume_policy.h; this applies them to all. Thread: the shard's. Knows no sockets and no clock:
// the caller sends requests and passes the time. Units: seconds of the monotonic clock. Borrows
// everything.
//
// Requests wait in order of arrival for an engine that takes requests. Suspects come first, one at
// a time, each alone on an engine: the engine is reserved, and a request that has passed is taken
// back when another suspect waits. Where other shards send to the same engines, a shard reserves
// one in its turn, and their requests leave it (probation_turns.h).
//
// A request whose adapter was loaded again since it has outputs ends with its engine: the next one
// would go on with other weights. Where its engine lives on it stays there. The same holds where
// its files are not those that were loaded, which is looked at when it would be sent.

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "frontend/engine_client/engine_health.h"
#include "frontend/engine_client/resume_policy.h"
#include "frontend/engine_client/running_requests.h"
#include "proto_msgpack/lora_request.h"

namespace tandem {

class Resumption {
 public:
  struct Calls {
    // The engine for a request with this rank, or why it must wait.
    std::function<StatusOr<int>(std::optional<int> rank)> choose_engine;
    std::function<void(const RunningRequest& running, int engine_index)> send;
    std::function<void(ResumeOutcome outcome)> report;
    // The engine is to run a suspect alone. False: others have requests there, and OnReserved is
    // called once these have left it. Each ends with a release, which is not answered.
    std::function<bool(int engine_index)> reserve;
    // has_ended: it did while the suspect was alone there, which others may not have noticed yet.
    std::function<void(int engine_index, bool has_ended)> release;
    // Whether the next engine would read other files for the adapter than its outputs are of.
    std::function<bool(const wire::LoraRequest& lora)> has_other_files = {};
  };

  Resumption(ResumeLimits limits, RunningRequests* running, EngineHealth* health, Calls calls);

  // The engine died: each of its requests begins to wait or ends with OnError.
  void OnLost(int engine_index, const Status& why, double now);
  // An engine that takes requests of at most max_model_len tokens has the index, and the requests
  // of the one before are its predecessor's (RunningRequests): those that the next one can go on
  // with begin to wait. A move is no death: nothing is counted against a request. Returns how many
  // move.
  int64_t OnTakenOver(int engine_index, int64_t max_model_len, double now);
  // The engine that was asked for with Calls::reserve is this shard's.
  void OnReserved(double now);
  // Another shard runs a suspect alone on the engine: requests leave it, and none is sent there.
  void Leave(int engine_index, double now);
  // That is over. has_ended: by the engine's end. Where this shard has not seen that yet, requests
  // come back once it has, or the end would count against them.
  void ComeBack(int engine_index, bool has_ended);
  // A running request without an engine, which none takes: it waits like those that lost theirs.
  void WaitForEngine(const RequestId& request_id, const Status& why, double now);
  // No request waits or is on probation.
  bool idle() const { return waiting_.empty() && !probation_; }
  // Sends what can be sent. Call it after anything that may let a request go on: an engine is
  // ready, outputs arrived, requests ended.
  void SendWaiting(double now);
  // Ends the requests that have waited too long.
  void Expire(double now);
  // When Expire has something to do; nullopt: nothing waits.
  std::optional<double> next_deadline() const;

 private:
  struct Waiting {
    RequestId request_id;
    int64_t order = 0;
    bool is_suspect = false;
    double deadline = 0;
    Status why;             // its engine's end
    bool is_alive = false;  // so is that engine: the request was taken back
  };
  struct Probation {
    int engine_index = 0;
    std::optional<RequestId> request_id = {};  // nullopt: others' requests leave the engine first
  };

  void OnDeath(const RequestId& request_id, const Status& why, double now);
  void Wait(Waiting waiting);
  bool RunsSuspect(int engine_index) const;
  void NoticeEnd(int engine_index);
  // Returns the suspect.
  RequestId EndProbation();
  void EndPassedProbation(double now);
  void BeginProbation(double now);
  // Sends the first suspect that may run on an engine, if that is still free for it.
  bool SendSuspect(int engine_index, double now);
  void SendOthers();
  void Send(const Waiting& waiting, int engine_index, bool alone);
  bool IsFree(int engine_index) const;  // for a suspect
  std::optional<int> FreeEngine(std::optional<int> rank) const;
  void RenewDeadlines(double now);
  // Of an engine that is alive. Nothing happens to a request that is not kept.
  void TakeBack(const RequestId& request_id, const Status& why, double now);
  // Drops entries whose requests have ended meanwhile.
  void ForgetEnded();
  // Ends those that only the engine that they have lost could go on with.
  void FailBound();
  // RunningRequest::is_bound, also by the adapter's files.
  bool IsBound(RunningRequest* running) const;
  void Report(const Waiting& waiting, ResumeOutcome outcome);
  void Fail(const RequestId& request_id, ResumeOutcome outcome, const Status& status);

  const ResumeLimits limits_;
  RunningRequests* const running_;
  EngineHealth* const health_;
  const Calls calls_;
  std::vector<Waiting> waiting_;  // in order of arrival
  std::optional<Probation> probation_;
  std::set<int> lost_since_left_, unseen_ends_;  // engines
};

}  // namespace tandem
