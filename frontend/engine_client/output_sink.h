#pragma once

// Receives one request's outputs. The last call is OnOutput with output.finished(), or OnError; the
// sink may be destroyed in it. It may submit and abort from inside a call. Thread: the shard's.

#include "common/status.h"
#include "proto_msgpack/schema.h"

namespace tandem {

class OutputSink {
 public:
  virtual ~OutputSink() = default;
  // timestamp: engine-monotonic seconds of the step. The output is gone after the call.
  virtual void OnOutput(const wire::EngineCoreOutput& output, double timestamp) = 0;
  // The request ended without a finish: refused by the engine (INVALID_ARGUMENT), retryable or
  // engine lost (UNAVAILABLE), else INTERNAL.
  virtual void OnError(const Status& status) = 0;
  // A prefill engine has computed the prompt: its last output, whose token is not the request's.
  virtual void OnPrefilled([[maybe_unused]] const wire::EngineCoreOutput& output,
                           [[maybe_unused]] double timestamp) {}
  // The frontend had kept its prompt back; a prefill engine has it now.
  virtual void OnWaited() {}
  // This engine goes on with the request, because the one before died or has only computed the
  // prompt: outputs continue where they ended.
  virtual void OnEngineChange([[maybe_unused]] int engine_index) {}
  // The model made NaN or infinite logits for the request; the output or the error follows.
  virtual void OnNansInLogits() {}
};

}  // namespace tandem
