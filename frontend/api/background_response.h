#pragma once

// A response that runs without its client: what it writes goes to the store.
// Thread: the shard it was created on. Lives until its coroutine has ended, and dies with the
// server: a response that runs at a shutdown is lost with the store.

#include <memory>
#include <string>

#include "frontend/api/generate.h"
#include "frontend/api/response_call.h"

namespace tandem {

class BackgroundResponse {
 public:
  BackgroundResponse(ApiContext* context, std::unique_ptr<ResponseCall> call,
                     double arrival_monotonic, AdmittedRequest request);

  const std::string& id() const { return id_; }
  bool is_stream() const { return is_stream_; }
  // What the store begins with.
  StoredResponse Queued();

  // From the first engine request to the last entry in the store. self keeps it alive.
  static Awaitable<void> Run(std::shared_ptr<BackgroundResponse> self);
  // why: OK when a client cancels it, else what it fails with.
  void Stop(const Status& why);

 private:
  void OnProgress();
  void Flush();
  void End();

  ResponseStore* const store_;
  const std::unique_ptr<ResponseCall> call_;
  const std::string id_;
  const bool is_stream_;
  const std::unique_ptr<Generation> generation_;
  std::string text_;  // that the writer has written and the store has not got
  std::unique_ptr<ResponseObjectWriter> writer_;
  bool has_output_ = false;
  Status failure_;
};

}  // namespace tandem
