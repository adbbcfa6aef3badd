#pragma once

// The course of a generation request, the same for every endpoint: admission, parsing and
// processing on the text pool, the engine, the answer as one body or as a stream; the client that
// goes away and the engine that dies in any of these.
// Thread: the exchange's shard.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/api/generation.h"
#include "frontend/http/router.h"
#include "frontend/net/net.h"
#include "frontend/openai/json.h"
#include "frontend/openai/responses.h"

namespace tandem {

// Which usage a stream shows.
struct StreamUsage {
  bool at_end = false;
  bool on_every_chunk = false;
};
StreamUsage MakeStreamUsage(const GenerationRequest& request, const ApiOptions& options);

// What an endpoint makes of a body.
struct PreparedRequest {
  ProcessedRequest processed;
  OutputOptions output;
  bool stream = false;
  // The writer of its answer: events or, at the end, one body appended to *out.
  std::function<std::unique_ptr<GenerationListener>(
      const Tokenizer& tokenizer, const std::vector<ChoicePrompt>& prompts, std::string* out)>
      make_answer;
};

// What a body is read with.
struct PrepareInput {
  const InputProcessor* input_processor;
  const ApiOptions* options;
  RequestContext context;       // external_id holds the bare id until the endpoint puts its prefix
  bool id_from_client = false;  // X-Request-Id: wins over the body's request_id
  std::optional<int64_t> priority;  // X-Vllm-Priority: wins over the body's
};

// "<prefix><id>" by the rules above.
std::string ResponseId(std::string_view prefix, const PrepareInput& input,
                       const GenerationRequest& request);

// From a parsed request to what answers it: as Stream or as Response, made of what
// make_shape(request, input) says.
template <class Stream, class Response, class Request, class MakeShape>
StatusOr<PreparedRequest> PrepareAnswer(Request request, std::string_view id_prefix,
                                        PrepareInput input, MakeShape make_shape) {
  ASSIGN_OR_RETURN(std::string model, ServedModel(*input.options, request.model));
  if (input.priority) request.priority = *input.priority;
  input.context.external_id = ResponseId(id_prefix, input, request);
  PreparedRequest prepared;
  ASSIGN_OR_RETURN(prepared.processed, input.input_processor->Process(request, input.context));
  prepared.output = MakeOutputOptions(request, *input.options);
  prepared.stream = request.stream;
  auto shape = make_shape(request, input);
  shape.head = {input.context.external_id, static_cast<int64_t>(input.context.arrival_time),
                std::move(model), input.options->system_fingerprint};
  prepared.make_answer = [shape = std::move(shape), stream = request.stream](
                             const Tokenizer& tokenizer, const std::vector<ChoicePrompt>& prompts,
                             std::string* out) -> std::unique_ptr<GenerationListener> {
    if (stream) return std::make_unique<Stream>(tokenizer, shape, prompts, out);
    return std::make_unique<Response>(tokenizer, shape, prompts, out);
  };
  return prepared;
}

// Runs on the text pool.
using PrepareFunction = StatusOr<PreparedRequest> (*)(const Json& body, PrepareInput input);
StatusOr<PreparedRequest> ParseAndPrepare(std::string_view body, PrepareInput input,
                                          PrepareFunction prepare);

Awaitable<void> ServeGeneration(Exchange& exchange, ApiContext* context, PrepareFunction prepare);

}  // namespace tandem
