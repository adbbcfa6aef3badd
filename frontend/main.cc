// tandem-frontend: the OpenAI API over HTTP in front of one or more engine cores.

#include <malloc.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/exit_status.h"
#include "common/fail_process.h"
#include "common/flags.h"
#include "common/log.h"
#include "common/log_format.h"
#include "common/log_level.h"
#include "common/log_thread.h"
#include "common/program_start.h"
#include "common/sd_notify.h"
#include "common/thread_room.h"
#include "common/version.h"
#include "frontend/adapter_service.h"
#include "frontend/api/admission_gate.h"
#include "frontend/api/context.h"
#include "frontend/api/error.h"
#include "frontend/api/response_store.h"
#include "frontend/api/routes.h"
#include "frontend/config.h"
#include "frontend/engine_client/engine_client.h"
#include "frontend/engine_client/probation_turns.h"
#include "frontend/engine_reports.h"
#include "frontend/hand_over/probation_link.h"
#include "frontend/http/listener.h"
#include "frontend/http/write_batch.h"
#include "frontend/image_loading.h"
#include "frontend/metrics/hidden_metrics.h"
#include "frontend/metrics/metrics.h"
#include "frontend/model_texts.h"
#include "frontend/net/net.h"
#include "frontend/open_files.h"
#include "frontend/reloading.h"
#include "frontend/shutdown.h"
#include "frontend/succession.h"
#include "frontend/tracing/request_trace.h"
#include "frontend/tracing/span_exporter.h"
#include "frontend/watchdog.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/wire_endpoint.h"

namespace tandem {
namespace {

// Writing to a connection that is closed is an error value, not a signal.
void PrepareProcess() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a log at the limit on file sizes is like one on a full disk
  // Threads that rarely allocate need no arena each.
  ::mallopt(M_ARENA_MAX, 2);
}

// Fewer where not as many files may be open.
Status FitConnections(FrontendConfig* config) {
  int64_t& num_connections = config->server.limits.num_connections;
  const int64_t max_files = RaiseOpenFileLimit();
  const int64_t num_own = NumOwnFiles(config->data_parallel_size, config->api_server_count);
  ASSIGN_OR_RETURN(const int64_t fit, ConnectionsThatFit(num_connections, num_own, max_files));
  if (fit < num_connections) {
    LOG_WARNING << "--max-connections is " << fit << ", not " << num_connections
                << ": this process may have " << max_files << " files open (ulimit -n)";
  }
  num_connections = fit;
  return OkStatus();
}

int NumTextThreads(const FrontendConfig& config) {
  if (config.text_threads > 0) return static_cast<int>(config.text_threads);
  const unsigned half = std::thread::hardware_concurrency() / 2;
  return static_cast<int>(std::clamp(half, 1u, 8u));
}

// At the start; others come with images and traces.
int NumThreads(const FrontendConfig& config) {
  constexpr int kOthers = 10;  // the log's, the wire's with those of ZMQ, tandem-media
  return static_cast<int>(config.api_server_count) + NumTextThreads(config) + kOthers;
}

template <class T>
std::vector<T*> Pointers(const std::vector<std::unique_ptr<T>>& owned) {
  std::vector<T*> pointers;
  pointers.reserve(owned.size());
  for (const auto& each : owned) pointers.push_back(each.get());
  return pointers;
}

std::vector<std::unique_ptr<Shard>> MakeShards(int num_shards) {
  std::vector<std::unique_ptr<Shard>> shards;
  shards.reserve(static_cast<size_t>(num_shards));
  for (int i = 0; i < num_shards; ++i) shards.push_back(std::make_unique<Shard>(i));
  return shards;
}

std::unique_ptr<EngineClient> MakeEngineClient(const FrontendConfig& config, Shard* shard,
                                               wire::FrontendEndpoint* endpoint,
                                               const Clock* clock) {
  ResumeLimits resume = config.resume;
  resume.max_kept_bytes /= endpoint->options().num_clients;
  const EngineClientOptions options = {
      .client_index = shard->index(),
      .num_clients = endpoint->options().num_clients,
      .num_engines = endpoint->options().num_engines,
      .start_rank = static_cast<int>(config.data_parallel_start_rank),
      .routes_by_prefix = config.data_parallel_routing == "prefix",
      .num_prefill_engines = static_cast<int>(config.prefill_engines),
      .prefill_min_tokens = config.prefill_min_tokens,
      .health = config.engine_health,
      .resume = resume};
  EngineClient::Thread thread;
  thread.post = [shard](std::function<void()> run) {
    shard->Post([run = std::move(run)] {
      const WriteBatch batch;
      run();
    });
  };
  thread.at = [shard](double deadline, std::function<void()> run) {
    shard->At(deadline, std::move(run));
  };
  thread.clock = clock;
  return std::make_unique<EngineClient>(options, endpoint, std::move(thread));
}

// With the frontends that meet their engines in the folder; null: there is none.
std::unique_ptr<ProbationLink> ShareEngines(const wire::IpcFolder* folder, int num_engines,
                                            Shard* shard, ProbationTurns* turns) {
  if (folder == nullptr) return nullptr;
  auto owned = std::make_unique<ProbationLink>(
      shard, ProbationLink::Options{.num_engines = num_engines},
      ProbationLink::Calls{.others = [folder] { return folder->OthersOf(kTurnsName); },
                           .begin =
                               [turns](int engine_index, ProbationLink::Callback left) {
                                 return turns->Begin(engine_index, std::move(left));
                               },
                           .end = [turns](int64_t turn) { turns->End(turn); }});
  ProbationLink* const link = owned.get();
  const Status status = link->Listen(folder->SocketOf(kTurnsName));
  if (!status.ok()) LOG_WARNING << "other frontends find no suspects here: " << status.message();
  turns->ShareEngines({.reserve = std::bind_front(&ProbationLink::Reserve, link),
                       .release = std::bind_front(&ProbationLink::Release, link)});
  return owned;
}

std::unique_ptr<ApiContext> MakeContext(const ApiParts& parts, const ApiOptions& options,
                                        EngineClient* client) {
  auto context = std::make_unique<ApiContext>(parts);
  context->engine_client = client;
  context->options = options;
  for (int i = 0; i < client->num_engines(); ++i) {
    context->step_tokens.emplace_back(&parts.metrics->engine(i));
  }
  return context;
}

// First shard.
void ReportHealth(EngineClient* first, const std::string* log_level, EngineReports* reports) {
  reports->RecordHealth(*first);
  SendLogLevel(*log_level, first);
}

// With several engines each shard chooses between them by what all shards know of them.
template <class Take>
void TellOthers(const std::vector<std::unique_ptr<EngineClient>>& clients, size_t from,
                const Take& take) {
  if (clients[from]->num_engines() == 1) return;
  for (size_t i = 0; i < clients.size(); ++i) {
    if (i == from) continue;
    EngineClient* const other = clients[i].get();
    other->RunOnShard([other, take] { take(other); });
  }
}

// Each shard's client reports what its engines send and what becomes of the requests they leave,
// the first one also which engines are there.
void ReportEngines(const std::vector<std::unique_ptr<EngineClient>>& clients,
                   const std::vector<std::unique_ptr<ApiContext>>& contexts,
                   const std::string* log_level, Succession* succession, Metrics* metrics,
                   EngineReports* reports) {
  for (size_t i = 0; i < clients.size(); ++i) {
    clients[i]->OnStats([&clients, i, reports, context = contexts[i].get()](
                            int engine, const wire::SchedulerStats& stats, double engine_time) {
      TellOthers(clients, i, [=](EngineClient* other) { other->TakeLoad(engine, stats); });
      reports->RecordStats(engine, stats, engine_time,
                           &context->step_tokens[static_cast<size_t>(engine)]);
    });
    clients[i]->OnPrefixSent([&clients, i](int engine, const std::vector<uint64_t>& hashes) {
      TellOthers(clients, i, [=](EngineClient* other) { other->TakePrefix(engine, hashes); });
    });
    clients[i]->OnResumeOutcome([metrics](ResumeOutcome outcome) {
      metrics->frontend().requests_resumed[outcome].Increment();
    });
    clients[i]->OnTakeOver([metrics, reports, client = clients[i].get(), is_first = i == 0](
                               int engine, int64_t num_moved) {
      metrics->frontend().requests_moved.Increment(static_cast<double>(num_moved));
      if (is_first) reports->RecordTakeOver(*client, engine);
    });
  }
  for (const auto& client : clients) {
    client->OnHealthChange([=, each = client.get()] {
      succession->OnHealthChange(*each);
      if (each->client_index() == 0 && !succession->stands_by()) {
        ReportHealth(each, log_level, reports);
      }
    });
  }
}

StatusOr<std::unique_ptr<HttpServer>> MakeServer(const FrontendConfig& config,
                                                 const std::vector<Route>& routes, Metrics* metrics,
                                                 std::vector<Shard*> shards) {
  ServerOptions options(config.server);
  ASSIGN_OR_RETURN(options.tls, LoadTls(config));
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
  return std::make_unique<HttpServer>(std::move(options), Router(routes), std::move(shards));
}

void LogStart(const FrontendConfig& config, const std::vector<Route>& routes,
              const std::string& address, const std::string& handshake_address) {
  LOG_INFO << "Available routes are:";
  for (const Route& route : routes) {
    LOG_INFO << "Route: " << route.path << ", Methods: " << route.method;
  }
  if (config.server_dev_mode) {
    LOG_WARNING << "dev mode: every client can pause the engines and reset caches";
  }
  const size_t num_keys = config.server.api_keys.size();
  LOG_INFO << (num_keys > 0 ? "API keys: " + std::to_string(num_keys)
                            : "no API key: every client is served");
  LOG_INFO << "Tandem frontend listening on " << address << ", engines at " << handshake_address;
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

// Null without an endpoint.
StatusOr<std::unique_ptr<SpanExporter>> StartTraces(const TraceOptions& options, Metrics* metrics) {
  for (const std::string& warning : options.warnings) LOG_WARNING << "[traces] " << warning;
  if (!options.enabled) return std::unique_ptr<SpanExporter>();
  return SpanExporter::Start(options, [metrics](SpanOutcome outcome, int64_t num_spans) {
    metrics->frontend().trace_spans[outcome].Increment(static_cast<double>(num_spans));
  });
}

void LogState(const std::vector<std::unique_ptr<EngineClient>>& clients) {
  for (const auto& each : clients) {
    each->RunOnShard([client = each.get()] { LOG_INFO << "[state] " << client->DebugString(); });
  }
}

// Builds everything in order, serves until a signal or a successor comes, and takes it down in the
// opposite order. words: the command line; given: its configuration; config: with the settings
// file's values. failed_as: changed where the failure has a status of its own.
Status Serve(const std::vector<std::string>& words, const FrontendConfig& given,
             FrontendConfig& config, const InputProcessor& input_processor,
             std::string tokenizer_info, int signal_fd, ExitStatus* failed_as) {
  RETURN_IF_ERROR(FitConnections(&config));
  ASSIGN_OR_RETURN(std::optional<HandOverClaim> claim, Succession::Claim(config));
  const SystemClock clock;
  Metrics metrics({.model_name = config.api.served_model_names.front(),
                   .num_engines = static_cast<int>(config.data_parallel_size),
                   .first_rank = static_cast<int>(config.data_parallel_start_rank),
                   .kv_cache_metrics = config.kv_cache_metrics,
                   .dev_mode = config.server_dev_mode,
                   .show_model_series = !config.disable_log_stats,
                   .show_hidden = config.show_hidden_metrics,
                   .show_deprecated = config.show_deprecated_metrics,
                   .buckets = config.buckets});
  if (config.lora_info_always) metrics.adapter_info().ShowAlways(clock.Unix());
  LogRetiringNames(metrics.Scrape());
  ASSIGN_OR_RETURN(const auto exporter, StartTraces(config.traces, &metrics));
  const std::optional<Tracer> tracer =
      exporter ? std::optional<Tracer>(std::in_place, exporter.get(), config.traces.sampler)
               : std::nullopt;
  AdmissionGate admission_gate(config.admission);
  const auto shards = MakeShards(static_cast<int>(config.api_server_count));
  const std::string inherited_adapters = claim ? std::move(claim->estate().adapters) : "";
  Succession succession(std::move(claim));
  EngineReports reports(&metrics, shards.front().get(), clock.Monotonic(),
                        [&succession] { return succession.is_handing_over(); });
  TextPool text_pool(NumTextThreads(config), [&metrics](double waited_s) {
    metrics.frontend().text_pool_wait_seconds.Increment(waited_s);
  });
  ASSIGN_OR_RETURN(const std::unique_ptr<ImageLoading> images,
                   ImageLoading::Start(config, input_processor, &text_pool, shards.front().get(),
                                       &metrics.engine(0), &clock));
  std::optional<wire::TcpKeys> tcp_keys;
  if (config.handshake_address.starts_with("tcp://") && !config.tcp_keys.empty()) {
    ASSIGN_OR_RETURN(tcp_keys, wire::ReadTcpKeys(config.tcp_keys, wire::TcpSide::kFrontend));
  }
  const std::string data_address = DataAddress(config.handshake_address);
  wire::FrontendEndpoint endpoint(
      {.handshake_address = config.handshake_address,
       .data_address = data_address,
       .num_engines = static_cast<int>(config.data_parallel_size),
       .num_clients = static_cast<int>(config.api_server_count),
       .tcp_keys = std::move(tcp_keys),
       .group_master = config.data_parallel_lockstep
                           ? data_address.substr(std::string_view("tcp://").size())
                           : ""});

  std::unique_ptr<ResponseStore> response_store;
  if (config.enable_responses_api_store) {
    response_store = std::make_unique<ResponseStore>(config.stored_responses, shards.front().get(),
                                                     &metrics.frontend());
  }

  std::unique_ptr<HttpServer> server;
  std::vector<std::unique_ptr<EngineClient>> clients;
  std::vector<std::unique_ptr<ApiContext>> contexts;
  AdapterService adapters(config, shards.front().get(), &contexts, &clock, &succession);
  const ServerFacts facts{.model_root = config.model,
                          .root_path = config.server.root_path,
                          .started_at = static_cast<int64_t>(clock.Unix()),
                          .track_load = config.enable_server_load_tracking,
                          .dev_mode = config.server_dev_mode,
                          .has_docs = !config.disable_fastapi_docs,
                          .has_dashboard = config.enable_dashboard,
                          .pools = input_processor.config().pooling.has_value(),
                          .changes_adapters = config.enable_runtime_lora,
                          .tokenizer_info = std::move(tokenizer_info),
                          .flags = DescribeConfig(config),
                          .num_requests = [&server] { return server->num_requests(); },
                          .is_draining = [&server] { return server->draining(); }};
  const ApiParts parts = {.input_processor = &input_processor,
                          .text_pool = &text_pool,
                          .admission_gate = &admission_gate,
                          .metrics = &metrics,
                          .clock = &clock,
                          .facts = &facts,
                          .response_store = response_store.get(),
                          .tracer = tracer ? &*tracer : nullptr,
                          .adapter_directory = adapters.directory(),
                          .image_loader = images ? images->loader() : nullptr};
  for (const auto& shard : shards) {
    clients.push_back(MakeEngineClient(config, shard.get(), &endpoint, &clock));
    contexts.push_back(MakeContext(parts, config.api, clients.back().get()));
  }
  ProbationTurns probation_turns(Pointers(clients));
  // Of the engines; first shard.
  std::string log_level = config.log_level == given.log_level ? "" : config.log_level;
  ReportEngines(clients, contexts, &log_level, &succession, &metrics, &reports);

  const std::vector<Route> routes = ApiRoutes(Pointers(contexts));
  ASSIGN_OR_RETURN(server, MakeServer(config, routes, &metrics, Pointers(shards)));
  RETURN_IF_ERROR(succession.Listen(server.get()));
  RETURN_IF_ERROR(WritePortFile(config.port_file, server->port()));
  // The last that may fail: its thread calls the clients, which a return after it would destroy
  // before it has ended.
  RETURN_IF_ERROR(succession.MeetEngines(&endpoint));
  const std::unique_ptr<ProbationLink> probation_link =
      ShareEngines(endpoint.folder(), static_cast<int>(config.data_parallel_size), shards[0].get(),
                   &probation_turns);
  LogStart(config, routes, server->address(), endpoint.handshake_address());

  const Reloading reloading = {&given,          &contexts,    &clients,
                               &admission_gate, server.get(), &log_level};
  ProcessSignals signals(shards[0].get(), signal_fd,
                         {.reload = [&] { reloading.Reload(); },
                          .log_state = [&clients] { LogState(clients); },
                          .hand_over = [&] { succession.Reload(); }});
  succession.Begin({.config = &given,
                    .words = words,
                    .shard = shards[0].get(),
                    .endpoint = &endpoint,
                    .server = server.get(),
                    .engines = Pointers(clients),
                    .adapters = adapters.directory(),
                    .metrics = &metrics,
                    .on_serving = [&] { ReportHealth(clients[0].get(), &log_level, &reports); },
                    .events = &signals.events()});
  adapters.Begin(config, inherited_adapters, &signals.events());
  if (!config.disable_log_stats) shards[0]->Spawn(reports.WriteLines(), "statistics line");
  const ShardWatchdog watchdog(Pointers(shards));
  for (const auto& shard : shards) shard->Start();

  if (WaitForEnd(server.get(), &signals.events())) {
    succession.End();
    Drain(server.get(), clients, config.shutdown_timeout, &signals.events());
  }
  for (const auto& shard : shards) shard->Stop();
  text_pool.Stop();  // its jobs write into what the shards are about to destroy
  if (images) images->Stop();
  for (const auto& shard : shards) shard->Join();
  succession.SendLastCounts();
  endpoint.Close();
  LOG_INFO << "[shutdown] done";
  if (adapters.failure().ok()) return succession.failure();
  *failed_as = kExitBadModel;
  return adapters.failure();
}

// What Serve reads of files that flags name.
Status CheckFiles(const FrontendConfig& config) {
  if (config.handshake_address.starts_with("tcp://") && !config.tcp_keys.empty()) {
    RETURN_IF_ERROR(wire::ReadTcpKeys(config.tcp_keys, wire::TcpSide::kFrontend).status());
  }
  return LoadTls(config).status();
}

int Main(int argc, char** argv) {
  const StatusOr<int> signal_fd = OpenSignals();  // first, so that none ends us from now on
  FrontendConfig given;
  bool check_config = false;
  std::vector<Flag> flags = FrontendFlags(given);
  flags.push_back(
      {"check-config", &check_config,
       "Check all values and the model's files, name what is wrong, and start nothing"});
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto outcome = ParseFlags(
      flags, words, "tandem-frontend MODEL [flags]: the OpenAI API in front of an engine core");
  HideSecretArguments(flags, argc, argv);
  HideSecretVariables(flags);
  if (outcome.ok() && *outcome == FlagOutcome::kHelpShown) return kExitOk;
  Status status = outcome.ok() ? Finish(given) : outcome.status();
  StatusOr<FrontendConfig> with_settings = status.ok() ? WithSettingsFile(given) : status;
  if (status.ok()) status = with_settings.status();
  FrontendConfig config = status.ok() ? *std::move(with_settings) : given;
  if (status.ok()) status = InitLog("APIServer", config.log_level);
  if (status.ok()) status = SetLogFormat(config.log_format);
  if (status.ok() && check_config) status = SetLogLevel("WARNING");
  if (!status.ok()) {
    std::fprintf(stderr, "tandem-frontend: %s\n", status.message().c_str());
    NotifyFailure(status.message());
    return kExitBadFlags;
  }
  SetThreadName("tandem-frontend");
  PrepareProcess();
  status = CheckThreadRoom(NumThreads(config));
  if (!status.ok()) return FailProcess(kExitFailed, status);
  StartLogThread();
  LOG_INFO << "tandem-frontend " << kVersion << " (vLLM API " << kVllmVersion << ")";
  if (!signal_fd.ok()) return FailProcess(kExitFailed, signal_fd.status());
  status = CheckModelFolders(config);
  if (!status.ok()) return FailProcess(kExitBadModel, status);
  const StatusOr<std::unique_ptr<InputProcessor>> input_processor = MakeInputProcessor(config);
  if (!input_processor.ok()) return FailProcess(kExitBadModel, input_processor.status());
  status = CheckFiles(config);
  if (!status.ok()) return FailProcess(kExitBadFlags, status);
  StatusOr<std::string> tokenizer_info = LoadTokenizerInfo(config, **input_processor);
  if (!tokenizer_info.ok()) return FailProcess(kExitBadModel, tokenizer_info.status());
  if (check_config) return kExitOk;
  ExitStatus failed_as = kExitFailed;
  status = Serve(words, given, config, **input_processor, *std::move(tokenizer_info), *signal_fd,
                 &failed_as);
  return status.ok() ? kExitOk : FailProcess(failed_as, status);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  if (!tandem::StartProgram("tandem-frontend")) return tandem::kExitFailed;
  return tandem::Main(argc, argv);
}
