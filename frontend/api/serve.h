#pragma once

// The course of a generation request, the same for every endpoint: admission, parsing and
// processing on the text pool, the engine, the answer as one body or as a stream; the client that
// goes away and the engine that dies in any of these.
// Thread: the exchange's shard.

#include <functional>
#include <memory>
#include <string>
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

// Runs on the text pool.
using PrepareFunction = StatusOr<PreparedRequest> (*)(const Json& body, PrepareInput input);
StatusOr<PreparedRequest> ParseAndPrepare(std::string_view body, PrepareInput input,
                                          PrepareFunction prepare);

Awaitable<void> ServeGeneration(Exchange& exchange, ApiContext* context, PrepareFunction prepare);

}  // namespace tandem
