#pragma once

// The shard's requests that engines work on: id → sink, and the aborts that the engines have not
// been sent yet. Thread: the shard's. Knows no sockets: the caller sends what TakeAborts returns.
// Owns: a copy of each request and the tokens it has produced, which is what another engine would
// need to go on with it (nothing sends a request a second time yet). Does not own sinks.
// A sink may submit and abort from inside a call: every function here allows it.

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
#include "proto_msgpack/schema.h"

namespace tandem {

class RunningRequests {
 public:
  explicit RunningRequests(int num_engines);

  // REQUIRES: no request of that id is running.
  void Add(wire::EngineCoreRequest request, int engine_index, OutputSink* sink);
  bool contains(const RequestId& request_id) const { return running_.contains(request_id); }
  size_t size() const { return running_.size(); }
  const std::vector<int64_t>& num_per_engine() const { return num_per_engine_; }

  // Passes an output to its sink. Outputs of requests that are not running are ignored.
  void HandleOutput(const wire::EngineCoreOutput& output, double timestamp);
  // The engine lists the request as finished; ends it with INTERNAL when it has not ended.
  void HandleFinished(const RequestId& request_id);
  // Ends each of the engine's requests with OnError(why). Returns how many there were.
  size_t FailAllOf(int engine_index, const Status& why);

  // Ends a request without calling its sink; ids that are not running are ignored.
  void Abort(const RequestId& request_id);
  // Each sink's last output has finish_reason abort. A name is a request's id, its external id,
  // which choices share, or the id of a response of /v1/completions, whose external ids end in the
  // prompt's number; no names: all requests. Returns how many ended.
  size_t AbortNamed(const std::vector<std::string>& names);
  // Each sink's last call is OnError(why).
  void AbortAll(const Status& why);
  // The ids aborted on an engine since the last call.
  wire::AbortRequest TakeAborts(int engine_index);

  std::string DebugString() const;  // one line for each request

 private:
  struct Running {
    wire::EngineCoreRequest request;
    std::vector<TokenId> emitted;
    OutputSink* sink = nullptr;
    int engine_index = 0;
  };
  using Map = std::unordered_map<RequestId, Running>;

  // Forgets the request. Its sink is called after that, so that it may submit the id again.
  OutputSink* Remove(Map::iterator position);
  void Fail(Map::iterator position, const Status& status);
  // Aborts those that still run, one by one, each before its sink's last call.
  size_t AbortEach(
      const std::vector<RequestId>& request_ids,
      const std::function<void(const RequestId& request_id, OutputSink* sink)>& last_call);

  Map running_;
  std::vector<int64_t> num_per_engine_;
  std::vector<wire::AbortRequest> aborts_;  // per engine
};

}  // namespace tandem
