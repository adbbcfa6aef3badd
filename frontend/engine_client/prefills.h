#pragma once

// Prompts that prefill engines compute for requests that other engines decode. The choices of one
// prompt share a prefill, a request of the frontend's own (RunningRequests). Until it is done they
// are running without an engine; then they go on together with an engine that decodes. A prefill
// that fails is tried once more on another engine; after that the choices go on without it and
// compute the prompt themselves, so none of this ends a request.
// Prompts wait here, in order of arrival, while all prefill engines hold as much KV
// for others as they may (PrefillRoom): what is computed sooner would only be lost unread.
// Thread: the shard's. Knows no sockets. Owns the prefills' sinks; borrows everything else.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "frontend/engine_client/prefill_room.h"
#include "frontend/engine_client/running_requests.h"

namespace tandem {

class Prefills {
 public:
  struct Calls {
    // An engine that computes prompts, takes this one and is admitted. RESOURCE_EXHAUSTED: none of
    // those that take it is admitted now; otherwise why none takes it.
    std::function<StatusOr<int>(const wire::EngineCoreRequest& choice, std::optional<int> failed,
                                const std::function<bool(int)>& admits)>
        choose_engine;
    std::function<void(const wire::EngineCoreRequest& prefill, int engine_index)> send;
    // These, which are running without an engine, go on with one that decodes. params: the
    // kv_transfer_params with which it finds the KV; nil: it computes the prompt. Returns those
    // that were sent with the params.
    std::function<KvReaders(const std::vector<RequestId>& choices, const wire::RawValue& params)>
        go_on;
  };

  Prefills(RunningRequests* running, int num_clients, Calls calls);
  ~Prefills();

  // Sends the prompt, or lets it wait for an engine like engine_index. Returns the one that it is
  // with or waits for. REQUIRES: the choices are running without an engine and are kept.
  int Begin(std::vector<RequestId> choices, int engine_index);
  // Sends what waits as far as there is room. Call it after anything that may make room.
  void SendWaiting();
  size_t num_waiting() const { return waiting_.size(); }

  // A new process has this cache.
  void OnReady(int engine_index, int64_t num_blocks, int64_t block_size) {
    room_.Reset(engine_index, num_blocks, block_size);
  }
  // Another one has the index, and the requests are its predecessor's (RunningRequests). OnReady
  // follows.
  void OnTakenOver(int engine_index) { room_.MakePredecessor(engine_index); }
  // The engine died or hangs.
  void OnLost(int engine_index, const Status& why);
  // An engine sent an output of a request, or its end.
  void OnOutput(const RequestId& sent_id) { room_.OnRead(sent_id); }
  // Aborts the prefills of which no choice is running any more.
  void ForgetEnded();

 private:
  struct Prefill;

  int64_t Wait(std::unique_ptr<Prefill> prefill);
  bool SendFirst();
  void Send(std::unique_ptr<Prefill> prefill, int engine_index);
  bool HasEnded(const RequestId& id) { return running_->Find(id) == nullptr; }
  // Takes it out, without the choices that have ended.
  std::unique_ptr<Prefill> Take(const RequestId& prefill_id);
  void OnDone(const RequestId& prefill_id, const wire::EngineCoreOutput& output, double timestamp);
  void OnFailed(const RequestId& prefill_id, const Status& why);

  RunningRequests* const running_;
  const Calls calls_;
  PrefillRoom room_;
  std::map<int64_t, std::unique_ptr<Prefill>> waiting_;  // by the order of their first choice
  bool is_sending_ = false;
  std::unordered_map<RequestId, std::unique_ptr<Prefill>> prefills_;  // under way
  bool has_warned_ = false;                                           // of those that leave no KV
};

}  // namespace tandem
