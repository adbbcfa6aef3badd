#include "frontend/api/dashboard.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/version.h"
#include "frontend/api/generation.h"
#include "frontend/api/page.h"
#include "frontend/net/ask_shard.h"
#include "frontend/openai/json.h"

namespace tandem {
namespace {

// Of one shard.
struct Listing {
  std::vector<LiveRequest> oldest;
  size_t num_requests = 0;
};

Listing List(const ApiContext& context) {
  Listing listing;
  listing.num_requests = context.live_requests.size();
  const double now = context.clock->Monotonic();
  for (const Generation* each : context.live_requests) {
    if (listing.oldest.size() == kMaxListedRequests) break;
    listing.oldest.push_back(each->Describe(now));
  }
  return listing;
}

// The listings of all shards, put together.
Awaitable<Listing> ListAll(const std::vector<ApiContext*>& contexts) {
  Listing all;
  for (const ApiContext* each : contexts) {
    std::function<void(std::function<void()>)> run = [each](std::function<void()> function) {
      each->engine_client->RunOnShard(std::move(function));
    };
    std::function<void(std::function<void(Listing)>)> list =
        [each](const std::function<void(Listing)>& reply) { reply(List(*each)); };
    Listing listing = co_await AskOwner<Listing>(std::move(run), std::move(list));
    std::ranges::move(listing.oldest, std::back_inserter(all.oldest));
    all.num_requests += listing.num_requests;
  }
  co_return all;
}

Json RequestJson(const LiveRequest& live) {
  return {{"id", live.id},
          {"phase", live.phase},
          {"choices", live.num_choices},
          {"prompt_tokens", live.num_prompt_tokens},
          {"cached_tokens", live.num_cached_tokens},
          {"output_tokens", live.num_output_tokens},
          {"max_output_tokens", live.max_output_tokens},
          {"preemptions", live.num_preemptions},
          {"age_s", live.age_s},
          {"ttft_s", live.time_to_first_token_s ? Json(*live.time_to_first_token_s) : Json()}};
}

Json EngineJson(const ApiContext& context, int index) {
  const Status status = context.engine_client->engine_status(index);
  const wire::EngineCoreReadyResponse& info = context.engine_client->engine_info(index);
  const EngineMetrics& metrics = context.metrics->engine(index);
  const EngineLoad::View load = metrics.load.Read();
  return {{"index", index},
          {"ready", status.ok()},
          {"status", status.ok() ? "ready" : status.message()},
          {"running", load.running},
          {"waiting", load.waiting},
          {"kv_cache_usage", metrics.kv_cache_usage_perc.Value()},
          {"kv_blocks", info.num_gpu_blocks},
          {"block_size", info.block_size},
          {"max_model_len", info.max_model_len},
          {"max_num_seqs", info.max_num_seqs},
          {"max_num_batched_tokens", info.max_num_batched_tokens},
          {"dtype", info.dtype},
          {"restarts", metrics.engine_restarts.Value()},
          {"resident_bytes", metrics.process_resident_memory_bytes.Value()}};
}

// up_since: by the clock that nobody sets.
Json StateJson(const ApiContext& context, double up_since, Listing listing) {
  std::ranges::stable_sort(listing.oldest, std::greater(), &LiveRequest::age_s);
  if (listing.oldest.size() > kMaxListedRequests) listing.oldest.resize(kMaxListedRequests);
  Json requests = Json::array();
  for (const LiveRequest& live : listing.oldest) requests.push_back(RequestJson(live));
  Json engines = Json::array();
  for (int i = 0; i < context.engine_client->num_engines(); ++i) {
    engines.push_back(EngineJson(context, i));
  }
  return {{"version", kVersion},
          {"model", context.options.served_model_names.front()},
          {"uptime_s", context.clock->Monotonic() - up_since},
          {"is_draining", context.facts->is_draining()},
          {"engines", std::move(engines)},
          {"num_requests", listing.num_requests},
          {"requests", std::move(requests)}};
}

Awaitable<void> HandleState(Exchange& exchange, const std::vector<ApiContext*>& contexts,
                            double up_since) {
  Listing listing = co_await ListAll(contexts);
  const ApiContext& here = *contexts[static_cast<size_t>(exchange.shard().index())];
  exchange.Respond(
      {200, DumpJson(StateJson(here, up_since, std::move(listing))), "application/json", {}});
}

}  // namespace

std::vector<Route> DashboardRoutes(const std::vector<ApiContext*>& contexts) {
  Route page{
      .method = "GET",
      .path = "/dashboard",
      .handler = SendsPage("text/html; charset=utf-8", [] { return std::string(DashboardPage()); }),
      .guarded = false,
      .counted = false,
      .json_body = false,
      .during_drain = true,
      .about = "A page of live requests, engines and latencies.",
      .returns = "Page"};
  Route state = page;
  state.path = "/dashboard/state";
  // The routes are made when the server starts.
  state.handler = [contexts, up_since = contexts.front()->clock->Monotonic()](Exchange& exchange) {
    return HandleState(exchange, contexts, up_since);
  };
  state.guarded = true;
  state.about = "Engines and live requests, for the page.";
  state.returns = "Object";
  return {std::move(page), std::move(state)};
}

}  // namespace tandem
