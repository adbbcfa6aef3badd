#pragma once

// One request to /v1/responses: its body becomes a chat request, which may continue a stored
// response. Thread: as GenerationCall says.

#include <memory>
#include <optional>
#include <string>

#include "frontend/api/chat_images.h"
#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"
#include "frontend/api/response_object.h"
#include "frontend/openai/chat_request.h"

namespace tandem {

class ResponseCall final : public GenerationCall {
 public:
  explicit ResponseCall(const ApiContext& context);

  const char* id_prefix() const override { return "resp_"; }
  Status Parse(JsonDocument body) override;
  bool needs_fetch() const override { return NeedsEarlier() || NeedsImages(chat_); }
  Awaitable<Status> Fetch(Exchange& exchange, std::optional<double> deadline) override;
  Status TakeFetched() override;
  GenerationRequest& request() override { return chat_; }
  const ChatRequest* chat() const override { return &chat_; }
  StatusOr<ProcessedRequest> Process(const RequestContext& context) override;
  Response Error(const Status& status) const override;
  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override;

  bool in_background() const { return request_.background; }
  // Of a response that its caller keeps.
  std::unique_ptr<ResponseObjectWriter> MakeObjectWriter(WriterInput input) const;
  const std::string& conversation() const { return conversation_; }

 private:
  bool NeedsEarlier() const { return request_.previous_response_id && !is_converted_; }
  Awaitable<Status> FetchEarlier();
  // earlier: the messages that the request continues, or null.
  Status Convert(const JsonDocument& earlier);

  const ApiContext* const context_;
  const InputProcessor& input_processor_;
  ResponseStore* const store_;  // null: responses are not kept
  ResponsesRequest request_;
  StoredResponsePtr earlier_;
  bool is_converted_ = false;  // to chat_
  ChatRequest chat_;
  ResponseShape shape_;
  JsonDocument messages_;     // of the conversation, when the response is stored
  std::string conversation_;  // the same as text
  bool leaves_out_tools_ = false;
};

}  // namespace tandem
