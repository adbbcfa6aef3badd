#include "frontend/api/abort_requests.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "frontend/api/error.h"
#include "frontend/engine_client/engine_client.h"
#include "frontend/net/net.h"
#include "frontend/openai/json.h"

namespace tandem {
namespace {

// {"request_ids": [...]}; empty: the body has none.
StatusOr<std::vector<std::string>> AbortNames(const std::string& body, const JsonLimits& limits) {
  std::vector<std::string> names;
  if (body.empty()) return names;
  ASSIGN_OR_RETURN(const JsonDocument json, ParseJson(body, limits));
  if (!json->is_object()) return InvalidArgumentError("the body must be a JSON object");
  const auto ids = json->find("request_ids");
  if (ids == json->end() || ids->is_null()) return names;
  const bool are_strings =
      ids->is_array() &&
      std::all_of(ids->begin(), ids->end(), [](const Json& id) { return id.is_string(); });
  if (!are_strings) {
    return InvalidArgumentError("request_ids must be a list of strings").WithParam("request_ids");
  }
  return ids->get<std::vector<std::string>>();
}

// The counts of all shards. Callbacks keep it alive after the client has gone.
struct PendingAborts {
  size_t num_aborted = 0;
  size_t num_left = 0;
  Event done;
};

// Each shard ends its own requests and posts their number back.
Awaitable<void> Handle(Exchange& exchange, std::vector<ApiContext*> contexts, AbortScope scope) {
  const JsonLimits& limits = contexts.front()->options.json_limits;
  auto names = AbortNames(exchange.request().body, limits);
  if (!names.ok()) co_return exchange.Respond(ErrorResponse(names.status()));
  if (names->empty() && scope == AbortScope::kNamed) {
    const Status none = InvalidArgumentError("request_ids is required and must not be empty");
    co_return exchange.Respond(ErrorResponse(Status(none).WithParam("request_ids")));
  }
  const auto aborts = std::make_shared<PendingAborts>();
  aborts->num_left = contexts.size();
  exchange.OnClosed([aborts] { aborts->done.Set(); });
  Shard* const home = &exchange.shard();
  for (ApiContext* context : contexts) {
    EngineClient* const client = context->engine_client;
    client->RunOnShard([client, aborts, home, names = *names] {
      const size_t num_ended = client->AbortNamed(names);
      home->Post([aborts, num_ended] {
        aborts->num_aborted += num_ended;
        if (--aborts->num_left == 0) aborts->done.Set();
      });
    });
  }
  co_await aborts->done.Wait();
  if (aborts->num_left > 0) co_return;  // the client is gone
  Response response;
  response.body = DumpJson({{"status", "aborted"}, {"aborted", aborts->num_aborted}});
  exchange.Respond(std::move(response));
}

}  // namespace

Handler AbortsRequests(const std::vector<ApiContext*>& contexts, AbortScope scope) {
  return [contexts, scope](Exchange& exchange) { return Handle(exchange, contexts, scope); };
}

}  // namespace tandem
