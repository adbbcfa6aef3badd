#include "frontend/api/routes.h"

#include "frontend/api/abort_requests.h"
#include "frontend/api/adapters.h"
#include "frontend/api/chat_completions.h"
#include "frontend/api/completions.h"
#include "frontend/api/dashboard.h"
#include "frontend/api/decisions.h"
#include "frontend/api/dev.h"
#include "frontend/api/generate.h"
#include "frontend/api/generate_tokens.h"
#include "frontend/api/generative_scoring.h"
#include "frontend/api/health.h"
#include "frontend/api/invocations.h"
#include "frontend/api/messages.h"
#include "frontend/api/models.h"
#include "frontend/api/openapi.h"
#include "frontend/api/output_rendering.h"
#include "frontend/api/pooling.h"
#include "frontend/api/request_rendering.h"
#include "frontend/api/responses.h"
#include "frontend/api/tokenize.h"

namespace tandem {

// clang-format off
std::vector<Route> ApiRoutes(std::vector<ApiContext*> contexts) {
  // A handler gets its shard's context.
  const auto on_shard = [&contexts](Awaitable<void> (*handle)(Exchange&, ApiContext*)) -> Handler {
    return [contexts, handle](Exchange& exchange) {
      return handle(exchange, contexts[static_cast<size_t>(exchange.shard().index())]);
    };
  };
  // An endpoint that generates.
  const auto generates = [&contexts](MakeCall make_call) -> Handler {
    return [contexts, make_call](Exchange& exchange) {
      return Generate(exchange, contexts[static_cast<size_t>(exchange.shard().index())], make_call);
    };
  };
  // Probes and scrapes: open, not counted, not logged, served until the process ends.
  const auto probe = [&on_shard](std::string method, std::string path,
                                 Awaitable<void> (*handle)(Exchange&, ApiContext*),
                                 std::string_view about, std::string_view returns) {
    return Route{.method = std::move(method), .path = std::move(path), .handler = on_shard(handle),
                 .guarded = false, .counted = false, .json_body = false, .during_drain = true,
                 .about = about, .returns = returns};
  };
  std::vector<Route> generation = {
      {.method = "POST", .path = "/v1/chat/completions", .handler = generates(MakeChatCompletion),
       .about = "Generates the next message of a conversation.", .body = "ChatCompletionRequest", .returns = "ChatCompletion"},
      {.method = "POST", .path = "/v1/completions", .handler = generates(MakeCompletion),
       .about = "Continues texts.", .body = "CompletionRequest", .returns = "Completion"},
      {.method = "POST", .path = "/v1/chat/completions/batch", .handler = generates(MakeChatBatch),
       .about = "Generates the next message of each of many conversations.", .body = "BatchRequest", .returns = "ChatCompletion"},
      {.method = "POST", .path = "/v1/responses", .handler = on_shard(HandleResponses),
       .about = "Generates items, as OpenAI's Responses API.", .body = "ResponsesRequest", .returns = "Response"},
      {.method = "GET", .path = "/v1/responses/{response_id}", .handler = on_shard(HandleGetResponse),
       .about = "A stored response, or its events.", .returns = "Response"},
      {.method = "DELETE", .path = "/v1/responses/{response_id}", .handler = on_shard(HandleDeleteResponse),
       .about = "Deletes a stored response.", .returns = "DeletedResponse"},
      {.method = "POST", .path = "/v1/responses/{response_id}/cancel", .handler = on_shard(HandleCancelResponse), .json_body = false,
       .about = "Ends a response that runs in the background.", .returns = "Response"},
      {.method = "POST", .path = "/invocations", .handler = generates(MakeInvocation),
       .about = "A chat, or a completion, by its body (SageMaker).", .body = "InvocationRequest", .returns = "ChatOrCompletion"},
      {.method = "POST", .path = "/inference/v1/generate", .handler = generates(MakeTokenGeneration),
       .about = "Token ids in, token ids out.", .body = "GenerateRequest", .returns = "GeneratedTokens"},
      {.method = "POST", .path = "/generative_scoring", .handler = generates(MakeGenerativeScoring),
       .about = "How likely a token is to follow a query with each of many items.", .body = "GenerativeScoringRequest", .returns = "ScoreList"},
      {.method = "POST", .path = "/v1/decisions", .handler = generates(MakeDecisions),
       .about = "How likely each option of each question is, as OpenAI's API.", .body = "DecisionRequest", .returns = "Decisions"},
      {.method = "POST", .path = "/v1/systemone", .handler = generates(MakeSystemOne),
       .about = "The same, as TypeSafe's API.", .body = "SystemOneRequest", .returns = "StructuredDecision"},
      {.method = "POST", .path = "/inference/v1/abort_requests", .handler = AbortsRequests(contexts, AbortScope::kNamed),
       .about = "Ends the named requests.", .body = "AbortNamedRequest", .returns = "Object"},
      {.method = "POST", .path = "/v1/chat/completions/render", .handler = on_shard(HandleRenderChat),
       .about = "A chat request as a body for /inference/v1/generate.", .body = "ChatCompletionRequest", .returns = "RenderedRequest"},
      {.method = "POST", .path = "/v1/completions/render", .handler = on_shard(HandleRenderCompletion),
       .about = "A completion request as bodies for /inference/v1/generate.", .body = "CompletionRequest", .returns = "RenderedRequests"},
      {.method = "POST", .path = "/v1/responses/render", .handler = on_shard(HandleRenderResponse),
       .about = "A Responses request as a body for /inference/v1/generate.", .body = "ResponsesRequest", .returns = "RenderedRequest"},
      {.method = "POST", .path = "/v1/messages/render", .handler = on_shard(HandleRenderMessage),
       .about = "An Anthropic request as a body for /inference/v1/generate.", .body = "MessagesRequest", .returns = "RenderedRequest"},
      {.method = "POST", .path = "/v1/chat/completions/derender", .handler = on_shard(HandleDerenderChat),
       .about = "What /inference/v1/generate has returned, as a chat's response.", .body = "DerenderChatRequest", .returns = "DerenderedChat"},
      {.method = "POST", .path = "/v1/completions/derender", .handler = on_shard(HandleDerenderCompletion),
       .about = "What /inference/v1/generate has returned, as a completion.", .body = "DerenderCompletionRequest", .returns = "DerenderedCompletion"},
      {.method = "POST", .path = "/v1/messages", .handler = generates(MakeMessage),
       .about = "Generates the next message, as Anthropic's API.", .body = "MessagesRequest", .returns = "Message"},
      {.method = "POST", .path = "/v1/messages/count_tokens", .handler = on_shard(HandleCountTokens),
       .about = "The number of tokens of a conversation.", .body = "CountTokensRequest", .returns = "TokenCount"},
  };
  std::vector<Route> pooling = {
      {.method = "POST", .path = "/v1/embeddings", .handler = generates(MakeEmbedding),
       .about = "A vector for each of the inputs.", .body = "EmbeddingRequest", .returns = "EmbeddingList"},
      {.method = "POST", .path = "/v2/embed", .handler = generates(MakeCohereEmbedding),
       .about = "The same, as Cohere's API.", .body = "CohereEmbedRequest", .returns = "CohereEmbeddings"},
      {.method = "POST", .path = "/pooling", .handler = generates(MakePooling),
       .about = "What the model makes of each of the inputs, as it is.", .body = "PoolingRequest", .returns = "PooledList"},
      {.method = "POST", .path = "/classify", .handler = generates(MakeClassification),
       .about = "The class of each of the inputs.", .body = "ClassificationRequest", .returns = "ClassificationList"},
      {.method = "POST", .path = "/invocations", .handler = generates(MakePoolingInvocation),
       .about = "Vectors, classes or scores, by its body (SageMaker).", .body = "PoolingInvocationRequest", .returns = "Object"},
  };
  for (const char* path : {"/score", "/v1/score"}) {
    pooling.push_back({.method = "POST", .path = path, .handler = generates(MakeScore),
                       .about = "How well each document answers its query.", .body = "ScoreRequest", .returns = "ScoreList"});
  }
  for (const char* path : {"/rerank", "/v1/rerank", "/v2/rerank"}) {
    pooling.push_back({.method = "POST", .path = path, .handler = generates(MakeRerank),
                       .about = "The documents, best first, as Jina's and Cohere's APIs.", .body = "RerankRequest", .returns = "RerankResults"});
  }
  // Those that the model can serve.
  std::vector<Route> routes = contexts.front()->facts->pools ? pooling : generation;
  for (Route& route : std::vector<Route>{
      {.method = "GET", .path = "/v1/models", .handler = on_shard(HandleModels),
       .about = "The served models.", .returns = "ModelList"},
      {.method = "GET", .path = "/v1/models/{model_id:path}", .handler = on_shard(HandleModel),
       .about = "One served model.", .returns = "ModelCard"},
      {.method = "POST", .path = "/tokenize", .handler = on_shard(HandleTokenize), .guarded = false,
       .about = "A text, or a conversation, as token ids.", .body = "TokenizeRequest", .returns = "Tokenized"},
      {.method = "POST", .path = "/detokenize", .handler = on_shard(HandleDetokenize), .guarded = false,
       .about = "Token ids as a text.", .body = "DetokenizeRequest", .returns = "Detokenized"},
      probe("GET", "/health", HandleHealth, "200 while the engine lives.", "Nothing"),
      probe("GET", "/ready", HandleReady, "200 while a request would be served.", "Nothing"),
      probe("GET", "/ping", HandleHealth, "As /health.", "Nothing"),
      probe("POST", "/ping", HandleHealth, "As /health.", "Nothing"),
      probe("GET", "/version", HandleVersion, "The version of vLLM whose contract is kept.", "Version"),
      probe("GET", "/load", HandleLoad, "The number of open requests, if they are tracked.", "Load"),
      probe("GET", "/metrics*", HandleMetrics, "Prometheus text.", "PlainText"),
      {.method = "GET", .path = "/kv_event_sources", .handler = on_shard(HandleKvEventSources), .guarded = false,
       .about = "Where to subscribe to KV events, by data-parallel rank.", .returns = "Object"},
  }) {
    routes.push_back(std::move(route));
  }
  const ServerFacts& facts = *contexts.front()->facts;
  if (!facts.tokenizer_info.empty()) {
    routes.push_back({.method = "GET", .path = "/tokenizer_info", .handler = on_shard(HandleTokenizerInfo),
                      .about = "The tokenizer's configuration.", .returns = "Object"});
  }
  if (facts.changes_adapters) {
    routes.push_back({.method = "POST", .path = "/v1/load_lora_adapter", .handler = on_shard(HandleLoadAdapter),
                      .about = "Loads a LoRA adapter, which requests may then name as their model.", .body = "LoadAdapterRequest", .returns = "PlainText"});
    routes.push_back({.method = "POST", .path = "/v1/unload_lora_adapter", .handler = on_shard(HandleUnloadAdapter),
                      .about = "Takes a LoRA adapter out.", .body = "UnloadAdapterRequest", .returns = "PlainText"});
  }
  if (facts.dev_mode) {
    for (Route& route : DevRoutes(contexts)) routes.push_back(std::move(route));
  } else {
    routes.push_back({.method = "GET", .path = "/is_sleeping", .handler = on_shard(HandleIsSleeping), .guarded = false,
                      .about = "Whether the engine sleeps.", .returns = "Object"});
  }
  if (facts.has_dashboard) {
    for (Route& route : DashboardRoutes(contexts)) routes.push_back(std::move(route));
  }
  if (facts.has_docs) {
    for (Route& route : DocumentRoutes(routes, facts.root_path)) routes.push_back(std::move(route));
  }
  return routes;
}
// clang-format on

}  // namespace tandem
