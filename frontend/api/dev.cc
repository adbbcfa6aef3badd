#include "frontend/api/dev.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/log.h"
#include "common/shorten.h"
#include "common/strings.h"
#include "common/version.h"
#include "frontend/api/abort_requests.h"
#include "frontend/api/error.h"
#include "frontend/api/render.h"
#include "frontend/media/image_loader.h"
#include "frontend/openai/json.h"
#include "frontend/openai/lax_values.h"
#include "proto_msgpack/codec.h"

namespace tandem {
namespace {

using Results = std::vector<wire::RawValue>;

// The replies of all engines to one call. Callbacks keep it alive after the client has gone.
struct PendingCalls {
  Results results;
  Status failure;
  size_t num_left = 0;
  Event done;
};

// Each engine's reply, or the first failure; CANCELLED when the client went away meanwhile.
Awaitable<StatusOr<Results>> CallEngines(Exchange& exchange, ApiContext* context,
                                         std::string method, Results args) {
  const auto calls = std::make_shared<PendingCalls>();
  const int num_engines = context->engine_client->num_engines();
  calls->results.resize(static_cast<size_t>(num_engines));
  calls->num_left = static_cast<size_t>(num_engines);
  exchange.OnClosed([calls] { calls->done.Set(); });
  for (int i = 0; i < num_engines; ++i) {
    UtilityCalls::Callback callback = [calls, i](StatusOr<wire::RawValue> result) {
      if (result.ok()) {
        calls->results[static_cast<size_t>(i)] = std::move(result).value();
      } else if (calls->failure.ok()) {
        calls->failure = result.status();
      }
      if (--calls->num_left == 0) calls->done.Set();
    };
    context->engine_client->CallUtility(i, method, wire::PackedArray(args), std::move(callback));
  }
  co_await calls->done.Wait();
  if (calls->num_left > 0) co_return CancelledError("the client is gone");
  if (!calls->failure.ok()) co_return calls->failure;
  co_return std::move(calls->results);
}

// The caller is an operator, so the engine's own message is shown even where others get general
// words.
void RespondWithFailure(Exchange& exchange, const Status& status) {
  if (status.code() == StatusCode::kCancelled) return;
  ApiError error = ToApiError(status);
  error.message = status.message();
  LOG_WARNING << exchange.request().path << ": " << status.ToString();
  exchange.Respond({error.http_status, ErrorBody(error), "application/json", {}});
}

void RespondJson(Exchange& exchange, const Json& body) {
  exchange.Respond({200, DumpJson(body), "application/json", {}});
}

bool AnyTrue(const Results& results) {
  return std::any_of(results.begin(), results.end(),
                     [](const wire::RawValue& value) { return UnpackJson(value) == true; });
}

bool AllTrue(const Results& results) {
  return std::all_of(results.begin(), results.end(),
                     [](const wire::RawValue& value) { return UnpackJson(value) == true; });
}

// ---- Query parameters ----

Status BadParameter(const std::string& name, const std::string& value, std::string_view allowed) {
  return InvalidArgumentError(name + " is '" + Shorten(value) + "', must be " +
                              std::string(allowed))
      .WithParam(name);
}

StatusOr<bool> BoolParameter(const HttpRequest& request, const std::string& name, bool missing) {
  const std::string value = request.Query(name);
  if (value.empty()) return missing;
  const std::optional<bool> given = BooleanOfText(value);
  if (!given) return BadParameter(name, value, "true or false");
  return *given;
}

StatusOr<std::string> ModeParameter(const HttpRequest& request) {
  std::string mode = request.Query("mode");
  if (mode.empty()) return std::string("abort");
  if (mode == "abort" || mode == "wait" || mode == "keep") return mode;
  return BadParameter("mode", mode, "abort, wait or keep");
}

StatusOr<int64_t> LevelParameter(const HttpRequest& request) {
  const std::string value = request.Query("level");
  if (value.empty()) return 1;
  const std::optional<int64_t> level = ParseNumber<int64_t>(value);
  if (level && *level >= 0 && *level <= 2) return *level;
  return BadParameter("level", value, "0, 1 or 2");
}

// ---- Caches ----

StatusOr<Results> ResetArguments(const HttpRequest& request) {
  ASSIGN_OR_RETURN(const bool running, BoolParameter(request, "reset_running_requests", false));
  ASSIGN_OR_RETURN(const bool external, BoolParameter(request, "reset_external", false));
  return Results{wire::PackedBool(running), wire::PackedBool(external)};
}

Awaitable<void> HandleResetPrefixCache(Exchange& exchange, ApiContext* context) {
  StatusOr<Results> args = ResetArguments(exchange.request());
  if (!args.ok()) co_return RespondWithFailure(exchange, args.status());
  const auto results =
      co_await CallEngines(exchange, context, "reset_prefix_cache", std::move(*args));
  if (!results.ok()) co_return RespondWithFailure(exchange, results.status());
  RespondJson(exchange, {{"success", AllTrue(*results)}});
}

Awaitable<void> ResetCache(Exchange& exchange, ApiContext* context, std::string method) {
  const auto results = co_await CallEngines(exchange, context, std::move(method), {});
  if (!results.ok()) co_return RespondWithFailure(exchange, results.status());
  exchange.Respond({200, "", "", {}});
}

Awaitable<void> HandleResetMmCache(Exchange& exchange, ApiContext* context) {
  if (context->image_loader != nullptr) context->image_loader->ResetCache();
  return ResetCache(exchange, context, "reset_mm_cache");
}

Awaitable<void> HandleResetEncoderCache(Exchange& exchange, ApiContext* context) {
  return ResetCache(exchange, context, "reset_encoder_cache");
}

// ---- Pause ----

StatusOr<Results> PauseArguments(const HttpRequest& request) {
  ASSIGN_OR_RETURN(const std::string mode, ModeParameter(request));
  ASSIGN_OR_RETURN(const bool clear_cache, BoolParameter(request, "clear_cache", true));
  return Results{wire::PackedString(mode), wire::PackedBool(clear_cache)};
}

Awaitable<void> HandlePause(Exchange& exchange, ApiContext* context) {
  StatusOr<Results> args = PauseArguments(exchange.request());
  if (!args.ok()) co_return RespondWithFailure(exchange, args.status());
  const auto results = co_await CallEngines(exchange, context, "pause_scheduler", std::move(*args));
  if (!results.ok()) co_return RespondWithFailure(exchange, results.status());
  RespondJson(exchange, {{"status", "paused"}});
}

Awaitable<void> HandleResume(Exchange& exchange, ApiContext* context) {
  const auto results = co_await CallEngines(exchange, context, "resume_scheduler", {});
  if (!results.ok()) co_return RespondWithFailure(exchange, results.status());
  RespondJson(exchange, {{"status", "resumed"}});
}

Awaitable<void> HandleIsPaused(Exchange& exchange, ApiContext* context) {
  const auto results = co_await CallEngines(exchange, context, "is_scheduler_paused", {});
  if (!results.ok()) co_return RespondWithFailure(exchange, results.status());
  RespondJson(exchange, {{"is_paused", AnyTrue(*results)}});
}

// ---- Sleep ----

// Measures a call from here to the end of the scope.
class SleepTimer {
 public:
  SleepTimer(ApiContext* context, SleepCall call)
      : metrics_(&context->metrics->dev()),
        clock_(context->clock),
        call_(call),
        began_(clock_->Monotonic()) {
    metrics_->sleep_calls_in_flight[call_].Add(1);
  }
  SleepTimer(const SleepTimer&) = delete;
  ~SleepTimer() {
    metrics_->sleep_calls_in_flight[call_].Add(-1);
    metrics_->sleep_call_duration[call_].Observe(clock_->Monotonic() - began_);
  }

 private:
  DevMetrics* const metrics_;
  const Clock* const clock_;
  const SleepCall call_;
  const double began_;
};

StatusOr<Results> SleepArguments(const HttpRequest& request, const EngineClient& client) {
  ASSIGN_OR_RETURN(const int64_t level, LevelParameter(request));
  ASSIGN_OR_RETURN(const std::string mode, ModeParameter(request));
  const wire::EngineCoreReadyResponse* engine = client.engine_info();
  if (engine == nullptr) return UnavailableError("the engine is not ready");
  if (level > 0 && !engine->enable_sleep_mode) {
    return UnimplementedError("sleep level " + std::to_string(level) +
                              " gives the engine's memory back, which needs --enable-sleep-mode; "
                              "level 0 pauses it")
        .WithParam("level");
  }
  return Results{wire::PackedInt(level), wire::PackedString(mode)};
}

Awaitable<void> HandleSleep(Exchange& exchange, ApiContext* context) {
  StatusOr<Results> args = SleepArguments(exchange.request(), *context->engine_client);
  if (!args.ok()) co_return RespondWithFailure(exchange, args.status());
  const int64_t level = UnpackJson((*args)[0]).get<int64_t>();
  const SleepTimer timed(context, SleepCall::kSleep);
  const auto results = co_await CallEngines(exchange, context, "sleep", std::move(*args));
  if (!results.ok()) co_return RespondWithFailure(exchange, results.status());
  context->metrics->sleep_levels().OnSleep(level);
  RespondJson(exchange, {{"status", "sleeping"}, {"level", level}});
}

Awaitable<void> HandleWakeUp(Exchange& exchange, ApiContext* context) {
  const std::vector<std::string> tags = exchange.request().QueryAll("tags");
  for (const std::string& tag : tags) {
    if (tag == "weights" || tag == "kv_cache" || tag == "scheduling") continue;
    co_return RespondWithFailure(exchange,
                                 BadParameter("tags", tag, "weights, kv_cache or scheduling"));
  }
  const wire::RawValue packed = tags.empty() ? wire::RawValue() : wire::PackedStrings(tags);
  const SleepTimer timed(context, SleepCall::kWake);
  if (tags.empty()) context->metrics->sleep_levels().OnWakeCall();
  Results args = {packed};
  const auto results = co_await CallEngines(exchange, context, "wake_up", std::move(args));
  if (!results.ok()) co_return RespondWithFailure(exchange, results.status());
  const bool awake = AllTrue(*results);
  if (awake) context->metrics->sleep_levels().OnAwake();
  RespondJson(exchange, {{"status", awake ? "awake" : "sleeping"},
                         {"tags", tags.empty() ? Json(nullptr) : Json(tags)}});
}

Awaitable<void> HandleReleaseKvCache(Exchange& exchange, ApiContext* context) {
  const SleepTimer timed(context, SleepCall::kReleaseKvCache);
  const auto results = co_await CallEngines(exchange, context, "release_kv_cache_memory", {});
  if (!results.ok()) co_return RespondWithFailure(exchange, results.status());
  RespondJson(exchange, {{"status", "kv_cache_released"}});
}

Awaitable<void> HandleIsSleepingNow(Exchange& exchange, ApiContext* context) {
  const auto results = co_await CallEngines(exchange, context, "is_sleeping", {});
  if (!results.ok()) co_return RespondWithFailure(exchange, results.status());
  RespondJson(exchange, {{"is_sleeping", AnyTrue(*results)}});
}

// ---- Server info ----

Json EngineInfoJson(const wire::EngineCoreReadyResponse& engine) {
  return {{"max_model_len", engine.max_model_len},
          {"num_gpu_blocks", engine.num_gpu_blocks},
          {"block_size", engine.block_size},
          {"dtype", engine.dtype},
          {"max_num_seqs", engine.max_num_seqs},
          {"max_num_batched_tokens", engine.max_num_batched_tokens},
          {"data_parallel_size", engine.data_parallel_size},
          {"vllm_version", engine.vllm_version},
          {"tandem_version", engine.tandem_version.value_or("")},
          {"instance_id", engine.instance_id}};
}

Json SystemJson() {
  utsname system{};
  ::uname(&system);
  return {{"os", std::string(system.sysname) + " " + system.release},
          {"machine", system.machine},
          {"cpu_count", std::thread::hardware_concurrency()},
          {"tandem_version", kVersion},
          {"vllm_version", kVllmVersion}};
}

std::string ConfigText(const Json& config) {
  std::string text;
  for (const auto& [name, value] : config.items()) {
    text += (text.empty() ? "" : ", ") + name + "=";
    text += value.is_string() ? value.get<std::string>() : DumpJson(value);
  }
  return text;
}

Awaitable<void> HandleServerInfo(Exchange& exchange, ApiContext* context) {
  const std::string format = exchange.request().Query("config_format");
  if (!format.empty() && format != "text" && format != "json") {
    co_return RespondWithFailure(exchange, BadParameter("config_format", format, "text or json"));
  }
  Json config = Json::object();
  for (const auto& [flag, value] : context->facts->flags) config[flag] = value;
  for (int i = 0; i < context->engine_client->num_engines(); ++i) {
    config["engine." + std::to_string(i)] = EngineInfoJson(context->engine_client->engine_info(i));
  }
  Json variables = Json::object();
  for (const auto& [name, value] : ServerEnvironment(environ)) variables[name] = value;
  const Json shown = format == "json" ? config : Json(ConfigText(config));
  RespondJson(
      exchange,
      {{"vllm_config", shown}, {"vllm_env", std::move(variables)}, {"system_env", SystemJson()}});
}

}  // namespace

std::vector<std::pair<std::string, std::string>> ServerEnvironment(const char* const* environment) {
  constexpr std::array<std::string_view, 4> kSecret = {"KEY", "TOKEN", "SECRET", "PASSWORD"};
  std::vector<std::pair<std::string, std::string>> variables;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const size_t equals = variable.find('=');
    const std::string_view name = variable.substr(0, equals);
    if (equals == std::string_view::npos ||
        !(name.starts_with("TANDEM_") || name.starts_with("VLLM_"))) {
      continue;
    }
    const bool secret = std::any_of(kSecret.begin(), kSecret.end(), [name](std::string_view word) {
      return name.find(word) != std::string_view::npos;
    });
    if (!secret) variables.emplace_back(name, variable.substr(equals + 1));
  }
  return variables;
}

std::vector<Route> DevRoutes(const std::vector<ApiContext*>& contexts) {
  const auto on_shard = [&contexts](Awaitable<void> (*handle)(Exchange&, ApiContext*)) -> Handler {
    return [contexts, handle](Exchange& exchange) {
      return handle(exchange, contexts[static_cast<size_t>(exchange.shard().index())]);
    };
  };
  const auto post = [&on_shard](const char* path, Awaitable<void> (*handle)(Exchange&, ApiContext*),
                                std::string_view about, std::string_view returns) {
    return Route{.method = "POST",
                 .path = path,
                 .handler = on_shard(handle),
                 .json_body = false,
                 .about = about,
                 .returns = returns};
  };
  const auto get = [&on_shard](const char* path, Awaitable<void> (*handle)(Exchange&, ApiContext*),
                               std::string_view about) {
    return Route{.method = "GET",
                 .path = path,
                 .handler = on_shard(handle),
                 .about = about,
                 .returns = "Object"};
  };
  Route server_info = get("/server_info", HandleServerInfo, "Flags, engines, environment.");
  server_info.counted = false;
  // Routers ask it of every server, without a key.
  Route is_sleeping = get("/is_sleeping", HandleIsSleepingNow, "Whether the engine sleeps.");
  is_sleeping.guarded = false;
  return {
      {.method = "POST",
       .path = "/abort_requests",
       .handler = AbortsRequests(contexts, AbortScope::kNamedOrAll),
       .about = "Ends the named requests, or all.",
       .body = "AbortRequest?",
       .returns = "Object"},
      post("/reset_prefix_cache", HandleResetPrefixCache, "Forgets cached prefixes.", "Object"),
      post("/reset_mm_cache", HandleResetMmCache, "Forgets prepared images.", "Nothing"),
      post("/reset_encoder_cache", HandleResetEncoderCache, "Forgets what towers made of images.",
           "Nothing"),
      post("/pause", HandlePause, "Stops scheduling.", "Object"),
      post("/resume", HandleResume, "Goes on after a pause.", "Object"),
      get("/is_paused", HandleIsPaused, "Whether scheduling is stopped."),
      post("/sleep", HandleSleep, "Stops scheduling, and may free memory.", "Object"),
      post("/wake_up", HandleWakeUp, "Goes on after a sleep.", "Object"),
      post("/release_kv_cache_memory", HandleReleaseKvCache,
           "Gives the KV cache's memory back, in a pause.", "Object"),
      std::move(is_sleeping),
      std::move(server_info),
  };
}

}  // namespace tandem
