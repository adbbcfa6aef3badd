#pragma once

// What makes up an endpoint that generates. Its file derives a GenerationCall (how a body is read
// and processed) and two ResponseWriters (for a body and for a stream of events); its row in
// routes.cc gives Generate (generate.h) the function that makes the call. No other file knows it.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "frontend/api/error.h"
#include "frontend/http/router.h"
#include "frontend/metrics/metrics.h"
#include "frontend/net/net.h"
#include "frontend/openai/chat_request.h"
#include "frontend/openai/generation_request.h"
#include "frontend/openai/responses.h"
#include "frontend/processing/input_processor.h"
#include "frontend/processing/logprobs.h"
#include "frontend/processing/message_delta.h"
#include "frontend/text/tokenizer.h"

namespace tandem {

// A choice's prompt, for responses that show it. Borrowed from the generation.
struct ChoicePrompt {
  const std::vector<TokenId>* token_ids = nullptr;
  const std::string* text = nullptr;
};

// Appends one response to a string as JSON text: a whole body at the end, or events as they come.
// Thread: the shard's. Knows no sockets. WriteDelta of a stream runs per token and allocates
// nothing.
class ResponseWriter {
 public:
  explicit ResponseWriter(std::string* out) : out_(out) {}
  virtual ~ResponseWriter() = default;
  ResponseWriter(const ResponseWriter&) = delete;

  // usage: of the whole request so far. The writer may move parts out of the delta.
  virtual void WriteDelta(int choice, MessageDelta& delta, const Usage& usage) = 0;
  // After the last choice's last delta.
  virtual void WriteEnd(const Usage& usage) = 0;
  // Of a body; known after WriteEnd.
  virtual const char* content_type() const { return "application/json"; }
  virtual HeaderList headers() { return {}; }
  // The end of a stream that fails after its first event, in OpenAI's form unless overridden.
  virtual void WriteError(const Status& status) {
    out_->append(ErrorEvent(status)).append("data: [DONE]\n\n");
  }

 protected:
  std::string* const out_;
};

// Which usage a stream shows.
struct StreamUsage {
  bool at_end = false;
  bool on_every_chunk = false;
};

// What every endpoint's writers are built from. The pointers outlive them.
struct WriterInput {
  ResponseHead head;
  bool stream = false;
  StreamUsage stream_usage;
  LogprobsStyle logprobs_style;
  const Tokenizer* tokenizer = nullptr;
  std::vector<ChoicePrompt> prompts;  // of each choice
  std::string* out = nullptr;
};

// One request to an endpoint that generates, through the stages of Generate.
class GenerationCall {
 public:
  virtual ~GenerationCall() = default;

  // The start of response ids: "chatcmpl-".
  virtual const char* id_prefix() const = 0;
  // How the metrics name the endpoint.
  virtual RequestType request_type() const { return RequestType::kOther; }
  // The response when the request is refused or fails before its response has begun, in OpenAI's
  // form unless overridden.
  virtual Response Error(const Status& status) const { return ErrorResponse(status); }

  // Reads the body; may move parts out of it. On the text pool.
  virtual Status Parse(JsonDocument body) = 0;
  // What the request refers to and Process needs. Most requests are whole without; those that are
  // not get Fetch on the shard, then TakeFetched on the text pool, again and again until they need
  // nothing more. deadline: monotonic seconds.
  virtual bool needs_fetch() const { return false; }
  virtual Awaitable<Status> Fetch(Exchange&, std::optional<double> /*deadline*/) {
    co_return OkStatus();
  }
  virtual Status TakeFetched() { return OkStatus(); }
  // The request that Parse read. Process uses it up.
  virtual GenerationRequest& request() = 0;
  // The same as a chat; null: it is none.
  virtual const ChatRequest* chat() const { return nullptr; }
  // Keeps what the response depends on and frees the rest of the request. On the text pool.
  virtual StatusOr<ProcessedRequest> Process(const RequestContext& context) = 0;
  // The writer of a stream or a body, by input.stream. On the shard, after Process.
  virtual std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const = 0;
};

}  // namespace tandem
