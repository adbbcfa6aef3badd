#pragma once

// Prompts that prefill engines compute for requests that other engines decode. The choices of one
// prompt share a prefill, a request of the frontend's own (RunningRequests). While it runs they are
// running without an engine; then they go on together with an engine that decodes. A prefill that
// fails is tried once more on another engine; after that the choices go on without it and compute
// the prompt themselves, so none of this ends a request.
// Thread: the shard's. Knows no sockets. Owns the prefills' sinks; borrows everything else.

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "frontend/engine_client/running_requests.h"

namespace tandem {

class Prefills {
 public:
  struct Calls {
    // An engine that computes prompts and takes this one, but not the one that failed; or why none.
    std::function<StatusOr<int>(const wire::EngineCoreRequest& choice, int failed)> choose_engine;
    std::function<void(const wire::EngineCoreRequest& prefill, int engine_index)> send;
    // These, which are running without an engine, go on with one that decodes. params: the
    // kv_transfer_params with which it finds the KV; nil: it computes the prompt.
    std::function<void(const std::vector<RequestId>& choices, const wire::RawValue& params)> go_on;
  };

  Prefills(RunningRequests* running, Calls calls);
  ~Prefills();

  // REQUIRES: the choices are running without an engine and are kept.
  void Begin(std::vector<RequestId> choices, int engine_index);
  // The engine died or hangs.
  void OnLost(int engine_index, const Status& why);
  // Aborts the prefills of which no choice is running any more.
  void ForgetEnded();

 private:
  struct Prefill;

  void Send(std::unique_ptr<Prefill> prefill, int engine_index);
  // Takes it out, without the choices that have ended.
  std::unique_ptr<Prefill> Take(const RequestId& prefill_id);
  void OnDone(const RequestId& prefill_id, const wire::EngineCoreOutput& output, double timestamp);
  void OnFailed(const RequestId& prefill_id, const Status& why);

  RunningRequests* const running_;
  const Calls calls_;
  std::unordered_map<RequestId, std::unique_ptr<Prefill>> prefills_;
  bool has_warned_ = false;  // of prefills that leave no KV
};

}  // namespace tandem
