#pragma once

// The response object of /v1/responses and its two writers: one body, or a stream of events.
// Thread: writers on the shard's, the rest on any. Pure but for random ids.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "frontend/api/generation_call.h"
#include "frontend/api/response_items.h"
#include "frontend/api/response_store.h"
#include "frontend/openai/responses_input.h"

namespace tandem {

// What of the request the response depends on.
struct ResponseShape {
  JsonDocument object;  // the response without what only the run gives
  ResponseTools tools;
  std::optional<int64_t> top_logprobs;  // empty: no logprobs
  bool shows_messages = false;          // the prompt and the output, each as a text and tokens
};

// All keys in their order; null where the run will tell.
Json ResponseObject(const ResponsesRequest& request, const wire::SamplingParams& sampling);

// Collects the items; at the end it knows the whole response.
class ResponseObjectWriter : public ResponseWriter {
 public:
  ResponseObjectWriter(ResponseShape shape, WriterInput input, ResponseEvents* events);

  // Keep the response once it has ended.
  void StoreIn(ResponseStore* store, std::string conversation);

  void WriteDelta(int choice, MessageDelta& delta, const Usage& usage) override;
  // The end of a response that a client gave up.
  void WriteCancelled(const Usage& usage);
  // The object with this status, before the end.
  std::string Body(const char* status);
  // Ends a response that failed; the object then has the error.
  std::string FailedBody(const Status& why);
  // The object after the end.
  std::string EndedBody() const;

 protected:
  const Json& object() const { return *object_; }
  // Ends the items and fills in what the run gave.
  void Finish(const Usage& usage);

 private:
  const ResponseTools tools_;
  JsonDocument object_;
  ResponseItems items_;
  FinishReason finish_reason_ = FinishReason::kStop;
  wire::RawValue kv_transfer_params_;
  wire::RawValue ec_transfer_params_;
  const bool shows_messages_;
  const WriterInput input_;
  std::vector<TokenId> token_ids_;  // of the output, where messages are shown
  ResponseStore* store_ = nullptr;
  std::string conversation_;
};

// By input.stream.
std::unique_ptr<ResponseObjectWriter> MakeResponseWriter(ResponseShape shape, WriterInput input);

}  // namespace tandem
