#include "frontend/api/responses.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "common/strings.h"
#include "frontend/api/background_response.h"
#include "frontend/api/error.h"
#include "frontend/api/response_call.h"

namespace tandem {
namespace {

// The id in /v1/responses/{response_id}.
std::string ResponseId(const Exchange& exchange) { return exchange.request().PathPart(2); }

void RespondWith(Exchange& exchange, const StatusOr<StoredResponsePtr>& response) {
  exchange.Respond(response.ok() ? Response{200, (*response)->body, "application/json", {}}
                                 : ErrorResponse(response.status()));
}

Response NotKept(const std::string& id) {
  return ErrorResponse(NoSuchResponse(
      id, "This server keeps no responses (--enable-responses-api-store turns that on)."));
}

// Sends events as they arrive, until the last one or until the client is gone.
Awaitable<void> SendEvents(Exchange& exchange, std::shared_ptr<StoredEvents> events) {
  EventStream& stream = exchange.StartEventStream();
  exchange.OnClosed([events] { events->arrived.Set(); });
  while (true) {
    co_await events->arrived.Wait();
    events->arrived.Reset();
    if (exchange.closed()) co_return;
    const std::string text = std::exchange(events->text, "");
    if (!text.empty() && !stream.Send(text)) co_return;
    if (events->is_end) break;
  }
  stream.Finish();
}

// Responds while the response runs on.
Awaitable<void> BeginInBackground(Exchange& exchange, ApiContext* context,
                                  std::unique_ptr<ResponseCall> call, AdmittedRequest request) {
  ResponseStore* const store = context->response_store;
  const auto response = std::make_shared<BackgroundResponse>(
      context, std::move(call), exchange.request().arrival_monotonic, std::move(request));
  StoredResponse queued = response->Queued();
  const std::string body = queued.body;
  StoredResponses::Stop stop = [home = &exchange.shard(),
                                weak = std::weak_ptr(response)](const Status& why) {
    home->Post([weak, why] {
      if (const auto running = weak.lock()) running->Stop(why);
    });
  };
  const Status begun = co_await store->Begin(response->id(), std::move(queued),
                                             response->is_stream(), std::move(stop));
  if (!begun.ok()) co_return exchange.Respond(ErrorResponse(begun));
  const auto events = std::make_shared<StoredEvents>();
  if (response->is_stream()) {
    const Status followed = co_await store->Follow(response->id(), -1, events);
    if (!followed.ok()) co_return exchange.Respond(ErrorResponse(followed));
  }
  exchange.shard().Spawn(BackgroundResponse::Run(response), "background response");
  if (response->is_stream()) {
    co_await SendEvents(exchange, events);
  } else {
    exchange.Respond({200, body, "application/json", {}});
  }
}

// What a GET asks for: the object, or the events with a number above `after`.
struct Wanted {
  bool stream = false;
  int64_t after = -1;
};

StatusOr<Wanted> ReadWanted(const HttpRequest& request) {
  Wanted wanted;
  const std::string stream = ToLower(request.Query("stream"));
  wanted.stream = stream == "true" || stream == "1";
  if (!wanted.stream && !stream.empty() && stream != "false" && stream != "0") {
    return InvalidArgumentError("stream must be true or false, got '" + stream + "'")
        .WithParam("stream");
  }
  const std::string after = request.Query("starting_after");
  if (after.empty()) return wanted;
  const std::optional<int64_t> number = ParseNumber<int64_t>(after);
  if (!number || *number < -1 || !wanted.stream) {
    return InvalidArgumentError(
               "starting_after must be the number of an event, and needs stream=true; got '" +
               after + "'")
        .WithParam("starting_after");
  }
  wanted.after = *number;
  return wanted;
}

}  // namespace

std::unique_ptr<GenerationCall> MakeResponse(const ApiContext& context) {
  return std::make_unique<ResponseCall>(context);
}

Awaitable<void> HandleResponses(Exchange& exchange, ApiContext* context) {
  auto call = std::make_unique<ResponseCall>(*context);
  auto request = co_await Admit(exchange, context, call.get());
  if (!request.ok()) co_return RespondWithError(exchange, *context, *call, request.status());
  if (call->in_background() && request->prepared.processed.beams) {
    const Status refused = InvalidArgumentError("use_beam_search is not available with background")
                               .WithParam("use_beam_search");
    co_return RespondWithError(exchange, *context, *call, refused);
  }
  if (call->in_background()) {
    co_await BeginInBackground(exchange, context, std::move(call), std::move(*request));
  } else {
    co_await Run(exchange, context, *call, std::move(*request));
  }
}

Awaitable<void> HandleGetResponse(Exchange& exchange, ApiContext* context) {
  ResponseStore* const store = context->response_store;
  std::string id = ResponseId(exchange);
  if (store == nullptr) co_return exchange.Respond(NotKept(id));
  const auto wanted = ReadWanted(exchange.request());
  if (!wanted.ok()) co_return exchange.Respond(ErrorResponse(wanted.status()));
  if (!wanted->stream) {
    const auto found = co_await store->Find(std::move(id));
    co_return RespondWith(exchange, found);
  }
  const auto events = std::make_shared<StoredEvents>();
  const Status followed = co_await store->Follow(std::move(id), wanted->after, events);
  if (!followed.ok()) co_return exchange.Respond(ErrorResponse(followed));
  co_await SendEvents(exchange, events);
}

Awaitable<void> HandleDeleteResponse(Exchange& exchange, ApiContext* context) {
  const std::string id = ResponseId(exchange);
  if (context->response_store == nullptr) co_return exchange.Respond(NotKept(id));
  const Status removed = co_await context->response_store->Remove(id);
  if (!removed.ok()) co_return exchange.Respond(ErrorResponse(removed));
  exchange.Respond({200,
                    DumpJson({{"id", id}, {"object", "response"}, {"deleted", true}}),
                    "application/json",
                    {}});
}

Awaitable<void> HandleCancelResponse(Exchange& exchange, ApiContext* context) {
  std::string id = ResponseId(exchange);
  if (context->response_store == nullptr) co_return exchange.Respond(NotKept(id));
  const auto ended = co_await context->response_store->Cancel(std::move(id));
  RespondWith(exchange, ended);
}

}  // namespace tandem
