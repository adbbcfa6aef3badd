#pragma once

// The shard's requests that engines work on: id → sink, and the aborts that the engines have not
// been sent yet. Thread: the shard's. Knows no sockets: the caller sends what TakeAborts returns.
// Owns: a copy of each request and the tokens it has produced, which is what an engine needs to go
// on with it after the death of another (Resumption decides that). Does not own sinks.
// A sink may submit and abort from inside a call: every function here allows it.
//
// Engine indices are those of the engines that serve, and Predecessor(i, …) of the engine that
// engine i has taken over from, while that one ends the requests that could not be moved.
//
// A prefill is a request of the frontend's own, which computes the prompt of others (prefills.h):
// it is on an engine as they are, but no client knows of it, and it is not sent again.
//
// An engine knows a request by its sent id: the request's own id, and after n resends that id with
// "~n". What a dead engine had sent may arrive after the request was sent to the next one; by then
// its id is unknown.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "frontend/engine_client/output_sink.h"
#include "frontend/engine_client/resume_policy.h"
#include "proto_msgpack/schema.h"

namespace tandem {

constexpr int kNoEngine = -1;
constexpr int Predecessor(int engine_index, int num_engines) { return engine_index + num_engines; }

struct RunningRequest {
  // As the next engine would get it: the outputs of earlier runs end the prompt, request_id is the
  // sent id. Without the prompt if it is not kept.
  wire::EngineCoreRequest request;
  std::vector<TokenId> emitted;  // since it was sent last
  OutputSink* sink = nullptr;
  int engine_index = kNoEngine;  // kNoEngine: it waits for one
  int64_t order = 0;             // of arrival
  size_t num_prompt_tokens = 0;
  int num_resends = 0;
  bool is_kept = false;  // it can be sent again
  bool is_prefill = false;
  bool has_older_adapter = false;  // its adapter has been loaded again since it joined its engine
  EngineDeaths deaths = {};

  bool has_outputs() const { return request.own.num_prior_output_tokens > 0 || !emitted.empty(); }
  // On another engine other weights would go on with its output.
  bool is_bound() const { return has_older_adapter && has_outputs(); }
};

class RunningRequests {
 public:
  RunningRequests(int num_engines, int64_t max_kept_bytes);

  // can_resume: by its engine. The request is kept if there is also room for it. engine_index:
  // kNoEngine for one that is to join an engine later. REQUIRES: no request of that id is running.
  void Add(wire::EngineCoreRequest request, int engine_index, bool can_resume, OutputSink* sink);
  // A prefill, of which nothing is kept. REQUIRES: the same.
  void AddPrefill(const RequestId& prefill_id, int engine_index, OutputSink* sink);
  // Whether these would all be kept.
  bool HasRoomFor(const std::vector<wire::EngineCoreRequest>& requests) const;
  bool contains(const RequestId& request_id) const { return running_.contains(request_id); }
  // nullptr when it is not running. Valid until it ends.
  RunningRequest* Find(const RequestId& request_id);
  size_t size() const { return running_.size() - num_prefills_; }  // without prefills
  // By engine index, the predecessors' last. Prefills count.
  const std::vector<int64_t>& num_per_engine() const { return num_per_engine_; }
  int num_engines() const { return static_cast<int>(num_per_engine_.size() / 2); }
  int64_t kept_bytes() const { return kept_bytes_; }

  // Passes an output to its sink. Outputs of requests that are not running are ignored.
  void HandleOutput(const wire::EngineCoreOutput& output, double timestamp);
  // The engine lists the request as finished; ends it with INTERNAL when it has not ended.
  void HandleFinished(const RequestId& sent_id);

  // ---- Engines come and go ----

  // The engine's requests, in order of arrival.
  std::vector<RequestId> RequestsOf(int engine_index) const;
  // Another engine has the index from now on; the requests and unsent aborts of the one that had it
  // are its predecessor's.
  void MakePredecessor(int engine_index);
  // The request leaves its engine: it has a new sent id and all its tokens are its prompt.
  // REQUIRES: is_kept.
  void LeaveEngine(RunningRequest* running);
  // Likewise, and the engine, which is alive, is sent an abort.
  void TakeBack(RunningRequest* running);
  // The caller has sent it to an engine. REQUIRES: it waits for one.
  void JoinEngine(RunningRequest* running, int engine_index);
  // An adapter was loaded, perhaps again.
  void OnAdapterLoaded(const std::string& name, const std::string& path);
  // Its sink's last call is OnError(status).
  void Fail(const RequestId& request_id, const Status& status);

  // ---- Aborts ----

  // Ends a request without calling its sink; ids that are not running are ignored.
  void Abort(const RequestId& request_id);
  // Each sink's last output has finish_reason abort; prefills are not named. A name is a request's
  // id, its external id, which choices share, or the id of a response of /v1/completions, whose
  // external ids end in the prompt's number; no names: all requests. Returns how many ended.
  size_t AbortNamed(const std::vector<std::string>& names);
  // Each sink's last call is OnError(why), but for prefills, which go on.
  void AbortAll(const Status& why);
  // Queues aborts of all requests that the engine has, which may read them one day, without ending
  // them.
  void QueueAborts(int engine_index);
  // Of a request that has ended here; the engine may still keep something for it.
  void QueueAbort(int engine_index, const RequestId& sent_id);
  // The sent ids aborted on an engine since the last call.
  wire::AbortRequest TakeAborts(int engine_index);

  std::string DebugString() const;  // one line for each request

 private:
  using Map = std::unordered_map<RequestId, RunningRequest>;

  Map::iterator FindSent(const RequestId& sent_id);
  void KeepOutput(RunningRequest* running, const std::vector<TokenId>& token_ids);
  void StopKeeping(RunningRequest* running);
  void QueueAbort(const RunningRequest& running);
  // Forgets the request. Its sink is called after that, so that it may submit the id again.
  OutputSink* Remove(Map::iterator position);
  // Aborts those that still run, one by one, each before its sink's last call.
  size_t AbortEach(
      const std::vector<RequestId>& request_ids,
      const std::function<void(const RequestId& request_id, OutputSink* sink)>& last_call);

  const int64_t max_kept_bytes_;
  Map running_;
  std::vector<int64_t> num_per_engine_;
  std::vector<wire::AbortRequest> aborts_;  // per engine
  size_t num_prefills_ = 0;
  int64_t next_order_ = 0;
  int64_t kept_bytes_ = 0;
};

}  // namespace tandem
