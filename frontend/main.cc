// tandem-frontend: the OpenAI API over HTTP in front of one or more engine cores.

#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "common/clock.h"
#include "common/flags.h"
#include "common/log.h"
#include "common/mailbox.h"
#include "common/read_file.h"
#include "common/sd_notify.h"
#include "common/strings.h"
#include "common/version.h"
#include "frontend/api/admission_gate.h"
#include "frontend/api/generation.h"
#include "frontend/api/routes.h"
#include "frontend/config.h"
#include "frontend/engine_client/engine_client.h"
#include "frontend/http/listener.h"
#include "frontend/metrics/metrics.h"
#include "frontend/metrics/stats_log.h"
#include "frontend/net/net.h"
#include "frontend/processing/input_processor.h"
#include "frontend/text/tokenizer.h"
#include "proto_msgpack/wire_endpoint.h"

namespace tandem {
namespace {

constexpr int kUsageExit = 2;
constexpr int64_t kMaxTemplateBytes = 16 << 20;
constexpr double kEndSeconds = 1;  // for clients to read how their requests ended
constexpr double kCutSeconds = 2;  // for handlers to end after their connections were cut

enum class MainEvent { kSignal, kDrained };

// Connections are descriptors, and writing to a closed one is an error value, not a signal.
void PrepareProcess() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  ::signal(SIGPIPE, SIG_IGN);
  // Threads that rarely allocate need no arena each.
  ::mallopt(M_ARENA_MAX, 2);
}

// Blocks SIGTERM and SIGINT for all threads to come and gives the descriptor that reports them.
StatusOr<int> OpenSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const int fd = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return ErrnoError(errno, "signalfd");
  return fd;
}

void WatchSignals(Socket* socket, Mailbox<MainEvent>* events) {
  socket->NotifyReadable([socket, events] {
    signalfd_siginfo info;
    while (::read(socket->fd(), &info, sizeof info) == sizeof info) {
      events->Push(MainEvent::kSignal);
    }
    WatchSignals(socket, events);
  });
}

// The template named by the flag (a file, or the text itself), else the model's; none is allowed.
StatusOr<std::optional<ChatTemplate>> LoadChatTemplate(const FrontendConfig& config,
                                                       const Tokenizer& tokenizer) {
  std::string source = tokenizer.chat_template();
  std::string name = "the model's chat template";
  if (!config.chat_template.empty()) {
    source = config.chat_template;
    name = "--chat-template";
    if (source.find_first_of("{\n") == std::string::npos) {
      auto file = ReadFile(source, kMaxTemplateBytes);
      if (!file.ok()) return file.status().WithContext(name);
      name += " " + source;
      source = std::move(file).value();
    }
  }
  if (source.empty()) return std::optional<ChatTemplate>();
  auto compiled = ChatTemplate::Compile(source);
  if (!compiled.ok()) return compiled.status().WithContext(name);
  return std::optional<ChatTemplate>(std::move(compiled).value());
}

StatusOr<std::unique_ptr<InputProcessor>> MakeInputProcessor(const FrontendConfig& config) {
  InputConfig input;
  ASSIGN_OR_RETURN(input.defaults, LoadModelDefaults(config.model, config.generation_config,
                                                     config.override_generation_config));
  input.max_logprobs = config.max_logprobs;
  input.max_n_sequences = config.max_n_sequences;
  input.max_completion_prompts = config.max_completion_prompts;
  input.max_stop_strings = config.max_stop_strings;
  input.max_bad_words = config.max_num_bad_words;
  input.max_bad_words_total_tokens = config.max_bad_words_total_tokens;
  input.response_role = config.response_role;
  if (!config.default_chat_template_kwargs.empty()) {
    auto kwargs = ParseJson(config.default_chat_template_kwargs);
    if (!kwargs.ok()) return kwargs.status().WithContext("--default-chat-template-kwargs");
    input.default_chat_template_kwargs = std::move(kwargs).value();
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> tokenizer, Tokenizer::Load(config.tokenizer));
  ASSIGN_OR_RETURN(std::optional<ChatTemplate> chat_template, LoadChatTemplate(config, *tokenizer));
  if (!chat_template) LOG_WARNING << "the model has no chat template: chat requests get 400";
  return std::make_unique<InputProcessor>(std::move(input), std::move(tokenizer),
                                          std::move(chat_template));
}

StatusOr<ServerOptions> MakeServerOptions(const FrontendConfig& config, Metrics* metrics) {
  ServerOptions options;
  options.host = config.host;
  options.port = static_cast<int>(config.port);
  options.uds = config.uds;
  options.api_keys = config.api_key;
  ASSIGN_OR_RETURN(options.cors.origins, ParseNameList("allowed-origins", config.allowed_origins));
  ASSIGN_OR_RETURN(options.cors.methods, ParseNameList("allowed-methods", config.allowed_methods));
  ASSIGN_OR_RETURN(options.cors.headers, ParseNameList("allowed-headers", config.allowed_headers));
  options.cors.credentials = config.allow_credentials;
  options.request_id_headers = config.enable_request_id_headers;
  options.sse_keep_alive_s = static_cast<double>(config.sse_keep_alive_interval);
  options.access_log = !config.disable_uvicorn_access_log;
  for (const std::string_view path : Split(config.disable_access_log_for_endpoints, ',')) {
    options.access_log_excluded.emplace_back(StripAscii(path));
  }
  options.limits = {.body_bytes = static_cast<size_t>(config.max_request_body_bytes),
                    .header_bytes = static_cast<size_t>(config.max_header_bytes),
                    .num_headers = static_cast<int>(config.h11_max_header_count),
                    .num_connections = static_cast<int>(config.max_connections),
                    .unsent_bytes_per_stream = static_cast<size_t>(config.max_unsent_bytes),
                    .keep_alive_s = config.http_timeout_keep_alive,
                    .head_s = config.http_timeout_head,
                    .body_s = config.http_timeout_body,
                    .write_s = config.http_timeout_write};
  if (!config.ssl_certfile.empty()) {
    ASSIGN_OR_RETURN(options.tls, TlsContext::Load({.certificate = config.ssl_certfile,
                                                    .key = config.ssl_keyfile,
                                                    .client_ca = config.ssl_ca_certs,
                                                    .ciphers = config.ssl_ciphers}));
  }
  options.error = HttpErrorResponse;
  options.on_exchange_end = [metrics](const ExchangeRecord& record) {
    if (!record.counted) return;
    metrics->Record(HttpSample{.handler = record.handler,
                               .method = record.method,
                               .status = record.status,
                               .request_bytes = record.request_bytes,
                               .response_bytes = record.response_bytes,
                               .duration_s = record.duration_s});
  };
  return options;
}

ApiOptions MakeApiOptions(const FrontendConfig& config) {
  ApiOptions options;
  options.served_model_names = config.served_model_name;
  options.enable_prompt_tokens_details = config.enable_prompt_tokens_details;
  options.enable_force_include_usage = config.enable_force_include_usage;
  options.return_tokens_as_token_ids = config.return_tokens_as_token_ids;
  options.enable_per_request_metrics = config.enable_per_request_metrics;
  options.skip_model_name_validation = config.skip_model_name_validation;
  options.stream_interval = config.stream_interval;
  options.system_fingerprint = "tandem-" + std::string(kVersion);
  return options;
}

int NumTextThreads(const FrontendConfig& config) {
  if (config.text_threads > 0) return static_cast<int>(config.text_threads);
  const unsigned half = std::thread::hardware_concurrency() / 2;
  return static_cast<int>(std::clamp(half, 1u, 8u));
}

// Runs whenever an engine came or went, on the first shard. `was_ready`: of the last call.
void OnHealthChange(const EngineClient& client, Metrics* metrics, bool* was_ready) {
  for (int i = 0; i < client.num_engines(); ++i) {
    // An engine that is gone runs nothing: its last numbers must not stay.
    if (!client.engine_ready(i)) metrics->Record(i, wire::SchedulerStats{});
  }
  const Status health = client.health();
  if (health.ok() == *was_ready) return;
  *was_ready = health.ok();
  if (!health.ok()) {
    LOG_ERROR << health.message();
    (void)SdNotify("STATUS=" + health.message());
    return;
  }
  const wire::EngineCoreReadyResponse& info = *client.engine_info();
  MetricLabels facts = {{"block_size", std::to_string(info.block_size)},
                        {"num_gpu_blocks", std::to_string(info.num_gpu_blocks)}};
  if (info.kv_cache_size_tokens) {
    facts["kv_cache_size_tokens"] = std::to_string(*info.kv_cache_size_tokens);
  }
  metrics->SetMaxModelLen(info.max_model_len);
  for (int i = 0; i < client.num_engines(); ++i) metrics->SetCacheConfig(i, facts);
  LOG_INFO << "Application startup complete.";
  (void)SdNotify("READY=1\nSTATUS=serving");
}

using StatsLogs = std::vector<std::unique_ptr<StatsLog>>;  // one per engine

StatsLogs MakeStatsLogs(Metrics* metrics, int num_engines, double now) {
  StatsLogs logs;
  for (int i = 0; i < num_engines; ++i) {
    logs.push_back(std::make_unique<StatsLog>(&metrics->engine(i), i, now));
  }
  return logs;
}

Awaitable<void> WriteStats(StatsLogs* logs) {
  const double interval = StatsLogInterval();
  double next = SystemClock().Monotonic();
  while (true) {
    next += interval;
    co_await SleepUntil(next);
    for (const auto& log : *logs) log->Write(SystemClock().Monotonic());
  }
}

std::unique_ptr<ApiContext> MakeContext(const ApiParts& parts, const FrontendConfig& config,
                                        EngineClient* client) {
  auto context = std::make_unique<ApiContext>(parts);
  context->engine_client = client;
  context->options = MakeApiOptions(config);
  for (int i = 0; i < client->num_engines(); ++i) {
    context->step_tokens.emplace_back(&parts.metrics->engine(i));
  }
  return context;
}

std::unique_ptr<EngineClient> MakeEngineClient(const FrontendConfig& config, Shard* shard,
                                               wire::FrontendEndpoint* endpoint) {
  const EngineClientOptions options = {.client_index = shard->index(),
                                       .num_clients = static_cast<int>(config.api_server_count),
                                       .num_engines = static_cast<int>(config.data_parallel_size),
                                       .health = {.hang_timeout_s = config.engine_hang_timeout}};
  return std::make_unique<EngineClient>(
      options, endpoint, [shard](std::function<void()> run) { shard->Post(std::move(run)); });
}

// What an engine tells of itself with a step, on the shard that has heard it.
void RecordStats(int engine, const wire::SchedulerStats& stats, ApiContext* context,
                 StatsLog* log) {
  context->metrics->Record(engine, stats);
  log->RecordPrefix(stats.prefix_cache_stats);
  context->step_tokens[static_cast<size_t>(engine)].End();
}

void LogRoutes(const std::vector<Route>& routes) {
  LOG_INFO << "Available routes are:";
  for (const Route& route : routes) {
    LOG_INFO << "Route: " << route.path << ", Methods: " << route.method;
  }
}

Status WritePortFile(const std::string& path, int port) {
  if (path.empty()) return OkStatus();
  // Renamed into place: a reader never sees an empty file.
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::trunc);
  file << port << "\n";
  file.close();
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (!file || error) return InternalError("--port-file " + path + ": cannot be written");
  return OkStatus();
}

// Each running request gets an answer: 503, or an error event behind what was streamed.
void EndRequests(const std::vector<std::unique_ptr<EngineClient>>& clients) {
  for (const auto& client : clients) {
    client->RunOnShard([ending = client.get()] {
      ending->EndAll(UnavailableError("the server is shutting down"));
    });
  }
}

// Lets running requests finish (the first signal), then ends them (time is up, or a second signal),
// then cuts the connections of clients that do not read.
void Drain(HttpServer* server, const std::vector<std::unique_ptr<EngineClient>>& clients,
           double timeout_s, Mailbox<MainEvent>* events) {
  LOG_INFO << "[shutdown] " << server->num_requests() << " open requests, up to " << timeout_s
           << " s for them";
  (void)SdNotify("STOPPING=1");
  server->BeginDrain();
  server->WhenDrained([events] { events->Push(MainEvent::kDrained); });
  const std::pair<double, std::function<void()>> stages[] = {
      {timeout_s, [] {}},
      {kEndSeconds, [&clients] { EndRequests(clients); }},
      {kCutSeconds, [server] { server->CloseAll(); }}};
  const SystemClock clock;
  std::vector<MainEvent> arrived;
  for (const auto& [patience_s, begin] : stages) {
    begin();
    const double deadline = clock.Monotonic() + patience_s;
    bool signalled = false;
    for (double left = patience_s; left > 0 && !signalled; left = deadline - clock.Monotonic()) {
      events->WaitFor(std::chrono::nanoseconds(static_cast<int64_t>(left * 1e9)));
      events->Drain(&arrived);
      for (const MainEvent event : arrived) {
        if (event == MainEvent::kDrained) return;
        signalled = true;
      }
    }
  }
}

// Builds everything in order, serves until a signal, and takes it down in the opposite order.
Status Serve(FrontendConfig& config) {
  ASSIGN_OR_RETURN(const int signal_fd, OpenSignals());
  const SystemClock clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<InputProcessor> input_processor,
                   MakeInputProcessor(config));
  const int num_engines = static_cast<int>(config.data_parallel_size);
  const int num_shards = static_cast<int>(config.api_server_count);
  Metrics metrics({.model_name = config.served_model_name.front(),
                   .num_engines = num_engines,
                   .kv_cache_metrics = config.kv_cache_metrics,
                   .show_model_series = !config.disable_log_stats});
  StatsLogs stats_logs = MakeStatsLogs(&metrics, num_engines, clock.Monotonic());
  AdmissionGate admission_gate({.max_num_queued_reqs = config.max_num_queued_reqs,
                                .max_num_queued_tokens = config.max_num_queued_tokens});

  Mailbox<MainEvent> events;
  std::vector<std::unique_ptr<Shard>> shards;
  std::vector<Shard*> shard_list;
  for (int i = 0; i < num_shards; ++i) {
    shards.push_back(std::make_unique<Shard>(i));
    shard_list.push_back(shards.back().get());
  }
  TextPool text_pool(NumTextThreads(config));

  wire::FrontendEndpoint endpoint({.handshake_address = config.handshake_address,
                                   .data_address = DataAddress(config.handshake_address),
                                   .num_engines = num_engines,
                                   .num_clients = num_shards});
  std::vector<std::unique_ptr<EngineClient>> clients;
  std::vector<std::unique_ptr<ApiContext>> contexts;
  std::vector<ApiContext*> context_list;
  const ApiParts parts = {.input_processor = input_processor.get(),
                          .text_pool = &text_pool,
                          .admission_gate = &admission_gate,
                          .metrics = &metrics,
                          .clock = &clock};
  for (Shard* shard : shard_list) {
    clients.push_back(MakeEngineClient(config, shard, &endpoint));
    contexts.push_back(MakeContext(parts, config, clients.back().get()));
    context_list.push_back(contexts.back().get());
    clients.back()->OnStats([&stats_logs, context = context_list.back()](
                                int engine, const wire::SchedulerStats& stats, double) {
      RecordStats(engine, stats, context, stats_logs[static_cast<size_t>(engine)].get());
    });
  }
  bool was_ready = false;
  clients[0]->OnHealthChange([&metrics, &was_ready, client = clients[0].get()] {
    OnHealthChange(*client, &metrics, &was_ready);
  });

  HttpServer* server_view = nullptr;
  const ServerFacts facts{.model_root = config.model,
                          .started_at = static_cast<int64_t>(clock.Unix()),
                          .track_load = config.enable_server_load_tracking,
                          .dev_mode = config.server_dev_mode,
                          .flags = DescribeConfig(config),
                          .num_requests = [&server_view] { return server_view->num_requests(); },
                          .is_draining = [&server_view] { return server_view->draining(); }};
  const std::vector<Route> routes = ApiRoutes(context_list, &facts, &metrics);
  ASSIGN_OR_RETURN(ServerOptions server_options, MakeServerOptions(config, &metrics));
  HttpServer server(std::move(server_options), Router(routes), shard_list);
  server_view = &server;
  RETURN_IF_ERROR(server.Listen());
  RETURN_IF_ERROR(WritePortFile(config.port_file, server.port()));
  // The last that may fail: its thread calls the clients, which a return from here on would destroy
  // before it has ended.
  RETURN_IF_ERROR(endpoint.Start());
  LogRoutes(routes);
  if (config.server_dev_mode) {
    LOG_WARNING << "dev mode: whoever may ask can pause the engines and reset caches";
  }
  LOG_INFO << "Tandem frontend listening on " << server.address() << ", engines at "
           << endpoint.handshake_address();

  Socket signals(shard_list[0], signal_fd);
  WatchSignals(&signals, &events);
  if (!config.disable_log_stats) shards[0]->Spawn(WriteStats(&stats_logs), "statistics line");
  for (const auto& shard : shards) shard->Start();

  events.Wait();
  std::vector<MainEvent> arrived;
  events.Drain(&arrived);
  Drain(&server, clients, config.shutdown_timeout, &events);
  for (const auto& shard : shards) shard->Stop();
  text_pool.Stop();  // its jobs write into what the shards are about to destroy
  for (const auto& shard : shards) shard->Join();
  endpoint.Close();
  LOG_INFO << "[shutdown] done";
  return OkStatus();
}

int Main(const std::vector<std::string>& args) {
  FrontendConfig config;
  const auto outcome =
      ParseFlags(FrontendFlags(config), args,
                 "tandem-frontend MODEL [flags]: the OpenAI API in front of an engine core");
  if (outcome.ok() && *outcome == FlagOutcome::kHelpShown) return 0;
  Status status = outcome.ok() ? Finish(config) : outcome.status();
  if (status.ok()) status = InitLog("APIServer", config.log_level);
  if (!status.ok()) {
    std::fprintf(stderr, "tandem-frontend: %s\n", status.message().c_str());
    return kUsageExit;
  }
  SetThreadName("tandem-frontend");
  PrepareProcess();
  LOG_INFO << "tandem-frontend " << kVersion << " (vLLM API " << kVllmVersion << ")";
  status = Serve(config);
  if (status.ok()) return 0;
  LOG_ERROR << status.message();
  return 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::Main(std::vector<std::string>(argv + 1, argv + argc));
}
