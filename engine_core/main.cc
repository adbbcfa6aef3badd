// tandem-engine-core: owns the model and runs it step by step for the frontend at
// --handshake-address. Exit status: common/exit_status.h.

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <new>
#include <optional>
#include <thread>

#include "common/clock.h"
#include "common/exit_status.h"
#include "common/fail_process.h"
#include "common/forking/helper_process.h"
#include "common/log.h"
#include "common/log_format.h"
#include "common/log_level.h"
#include "common/log_thread.h"
#include "common/mailbox.h"
#include "common/program_start.h"
#include "common/sd_notify.h"
#include "common/strings.h"
#include "common/thread_room.h"
#include "common/version.h"
#include "engine_core/adapters/adapter_loader.h"
#include "engine_core/cache_facts.h"
#include "engine_core/config.h"
#include "engine_core/engine_core.h"
#include "engine_core/engine_flight.h"
#include "engine_core/executor/model_runner.h"
#include "engine_core/executor/rank_caches.h"
#include "engine_core/executor/standstill.h"
#include "engine_core/executor/watched_executor.h"
#include "engine_core/flags/pack_flags.h"
#include "engine_core/flags/replay_flags.h"
#include "engine_core/grammar/grammar_service.h"
#include "engine_core/kv_cache/block_hash.h"
#include "engine_core/kv_event_batch.h"
#include "engine_core/kv_transfer/make_connector.h"
#include "engine_core/kv_transfer/model_fingerprint.h"
#include "engine_core/kv_transfer/transferring_executor.h"
#include "engine_core/load_runner.h"
#include "engine_core/models/registry.h"
#include "engine_core/packed_check.h"
#include "engine_core/packed_start.h"
#include "engine_core/recorder/flight_folder.h"
#include "engine_core/run_pack.h"
#include "engine_core/run_replay.h"
#include "engine_core/run_worker.h"
#include "engine_core/startup_log.h"
#include "engine_core/tokenizer_hash.h"
#include "engine_core/watchdog.h"
#include "engine_core/workers/cpu_bind.h"
#include "pooling/pooler_config.h"
#include "proto_msgpack/kv_event_publisher.h"
#include "proto_msgpack/wire_endpoint.h"

namespace tandem {
namespace {

constexpr char kAbout[] =
    "tandem-engine-core MODEL [flags]: the model's process; serves the frontend it finds at "
    "--handshake-address";

sigset_t HandledSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&signals, signal);
  return signals;
}

// Waits for signals on a thread of its own. SIGTERM and SIGINT ask the loop for a shutdown; while
// the model is still loading there is nothing to end in order and the process exits at once.
class SignalThread {
 public:
  // REQUIRES: HandledSignals are blocked in this thread, so that only the new one gets them.
  explicit SignalThread(Mailbox<EngineEvent>* events)
      : events_(events), thread_([this] { Run(); }) {}
  ~SignalThread() {
    is_over_ = true;
    pthread_kill(thread_.native_handle(), kStopWaiting);
    thread_.join();
  }
  void SetServing() { serving_ = true; }
  // What SIGUSR1 does besides; called on this thread, and not after it is set to nullptr.
  void OnStateRequest(EngineFlight* flight) { flight_ = flight; }

 private:
  static constexpr int kStopWaiting = SIGUSR2;

  void Run() {
    SetThreadName("signals");
    const sigset_t signals = HandledSignals();
    while (!is_over_) {
      int signal = 0;
      sigwait(&signals, &signal);
      if (signal == SIGTERM || signal == SIGINT) Stop(signal);
      if (signal == SIGUSR1) {
        events_->Push(LogStateRequest{});
        if (EngineFlight* flight = flight_) flight->Write("SIGUSR1");
      }
      if (signal == SIGHUP) LOG_INFO << "[reload] the engine core reads nothing: see the frontend";
    }
  }
  void Stop(int signal) {
    if (!serving_) {
      LOG_INFO << "[shutdown] " << strsignal(signal) << " while loading";
      ExitAfterLog(kExitOk);
    }
    LOG_INFO << "[shutdown] " << strsignal(signal);
    LogIfError(SdNotify("STOPPING=1"));
    events_->Push(ShutdownRequest{});
  }
  static void LogIfError(const Status& status) {
    if (!status.ok()) LOG_WARNING << "cannot notify systemd: " << status.ToString();
  }

  Mailbox<EngineEvent>* events_;
  std::atomic<bool> serving_{false};
  std::atomic<EngineFlight*> flight_{nullptr};
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

// Runs when `new` fails, in place of an exception that nothing would catch.
template <ExitStatus exit_status>
void EndWithoutMemory() {
  std::set_new_handler(nullptr);  // the log line below allocates
  WriteLastFlight("no more memory");
  LOG_FATAL << "this process gets no more memory; lower --max-num-seqs, --max-model-len "
               "or --max-num-batched-tokens";
  ExitAfterLog(exit_status);
}

// Without cleaning up: the loop's thread cannot be joined, and the supervisor starts a new process.
void EndLost(const std::string& what) {
  WriteLastFlight(("watchdog: " + what).c_str());
  LOG_FATAL << "the executor does not answer: " << what;
  ExitAfterLog(kExitFailed);
}

void EndWithoutRank(const std::string& what) {
  WriteLastFlight(("a rank is lost: " + what).c_str());
  LOG_FATAL << "the model has lost a rank: " << what;
  ExitAfterLog(kExitFailed);
}

void EndDamaged(const Status& damage) {
  WriteLastFlight("the model's file is damaged");
  LOG_FATAL << "the model was not what was packed: " << damage.message();
  ExitAfterLog(kExitBadModel);
}

// Ends the process when what runs a step is at a stand. Called on the thread that runs them; empty:
// nobody asks for it. On a device a step is waited for at rest, so there only other processes are
// looked at. A loop that waits for ranks of which one goes on lives (pulse).
WatchedExecutor::OnLasting LookAtSteps(const EngineConfig& config, const LoadedRunner& loaded,
                                       LoopPulse* pulse) {
  if (config.worker_timeout_seconds == 0) return {};
  const int most_looks = std::max(
      1, static_cast<int>(config.worker_timeout_seconds * 1000 / WatchedExecutor::kLookMs));
  std::shared_ptr<StandstillWatch> watch;
  RankGroup* const ranks = loaded.ranks.get();
  if (loaded.runner->backend().device().memory_is_host()) {
    watch = std::make_shared<StandstillWatch>(
        ranks == nullptr ? nullptr : &ranks->lines()[ranks->rank()].wait);
  }
  return [watch, most_looks, pulse, workers = loaded.workers.get()](const WatchedStep& step) {
    std::optional<Standstill> own;
    if (watch != nullptr && RunsStep(step.call)) own = watch->Look(step.number);
    if (own && own->awaits_ranks) pulse->Turn();
    if (workers != nullptr) return workers->Look(most_looks, own);
    if (!own || own->num_looks < most_looks) return;
    EndLost(step.ToString() + ", stands still: for " +
            std::to_string(most_looks * WatchedExecutor::kLookMs) +
            " ms no thread of the process has done anything");
  };
}

// This process's own CPUs of --cpu-bind.
Status BindOwnRank(const EngineConfig& config) {
  const RankCounts ranks = RankCountsOf(config);
  ASSIGN_OR_RETURN(const auto cpus, ParseCpuBind(config.cpu_bind, ranks.num_ranks()));
  if (cpus.empty()) return OkStatus();
  return BindToCpus(cpus[static_cast<size_t>(ranks.output_rank())]);
}

// Of the tokenizer that the frontend has: a folder, or a .gguf file.
const std::string& TokenizerPath(const EngineConfig& config) {
  return config.tokenizer.empty() ? config.model : config.tokenizer;
}

wire::EngineCoreReadyResponse ReadyResponse(const EngineConfig& config, const EngineSetup& setup) {
  const ExecutorLimits& limits = setup.runner.limits;
  const CacheSize cache = SizeOf(limits);
  wire::EngineCoreReadyResponse ready;
  ready.max_model_len = limits.max_model_len;
  ready.num_gpu_blocks = limits.num_blocks;
  ready.block_size = limits.block_size;
  ready.dtype = std::string(DTypeName(setup.backend.dtype));
  ready.vllm_version = kVllmVersion;
  ready.data_parallel_rank = static_cast<int32_t>(config.data_parallel_rank);
  ready.supports_lora = config.enable_lora;
  ready.max_loras = setup.engine.scheduler.max_loras;
  ready.max_num_seqs = limits.max_num_seqs;
  ready.max_num_batched_tokens = limits.max_num_batched_tokens;
  ready.enable_sleep_mode = config.enable_sleep_mode;
  ready.instance_id = RandomHex(16);
  ready.kv_cache_size_tokens = cache.tokens;
  ready.kv_cache_max_concurrency = cache.max_concurrency;
  ready.tandem_version = kVersion;
  ready.tokenizer_hash = TokenizerHash(TokenizerPath(config));
  ready.batch_invariant = setup.device != "cuda";
  return ready;
}

// nullptr when KV events are off.
StatusOr<std::unique_ptr<wire::KvEventPublisher>> StartKvEvents(const EngineConfig& config,
                                                                const EngineSetup& setup) {
  if (!setup.kv_events.publishes()) return std::unique_ptr<wire::KvEventPublisher>();
  if (!setup.engine.kv_cache.enable_events) {
    LOG_WARNING << "no KV events will be published: prefix caching is off";
  }
  auto publisher = std::make_unique<wire::KvEventPublisher>(wire::KvEventPublisherOptions{
      .config = setup.kv_events,
      .data_parallel_rank = static_cast<int>(config.data_parallel_rank),
      .hash_form = KvHashFormFromEnvironment()});
  RETURN_IF_ERROR(publisher->Start());
  return publisher;
}

StatusOr<std::unique_ptr<GrammarService>> StartGrammars(const EngineConfig& config,
                                                        const EngineSetup& setup,
                                                        const Clock* clock,
                                                        Mailbox<EngineEvent>* events) {
  const ExecutorLimits& limits = setup.runner.limits;
  return GrammarService::Create(
      {.program = HelperProgramPath("tandem-grammar"),
       .model_folder = config.model,
       .tokenizer_folder = TokenizerPath(config),
       .vocab_size = limits.vocab_size,
       .max_num_seqs = limits.max_num_seqs,
       .max_model_len = limits.max_model_len,
       .defaults = setup.grammars.defaults,
       .max_drafts = limits.drafts.num_speculative_tokens},
      clock, [events](GrammarCompiled compiled) { events->Push(std::move(compiled)); });
}

void AnnounceReady(const EngineConfig& config, SignalThread* signals, StartupLog* startup) {
  signals->SetServing();
  if (const Status status = SdNotify("READY=1\nSTATUS=serving " + config.model); !status.ok()) {
    LOG_WARNING << "cannot notify systemd: " << status.ToString();
  }
  startup->Done("engine and wire");
  LOG_INFO << "Engine core ready in " << Fixed(startup->total_s(), 3) << " seconds, frontend at "
           << config.handshake_address;
}

// What ends an engine besides signals: its frontend serves with another one, or does not want it.
// Written on the wire's thread before the event that ends the loop.
struct Dismissal {
  void On(const Status& reason) {
    refusal = reason;
    if (!reason.ok()) return events->Push(ShutdownRequest{});
    (void)SdNotify("STATUS=another engine core has taken over\n" + std::string(kLeavingNotice));
    events->Push(LeaveRequest{});
  }

  Mailbox<EngineEvent>* events;
  Status refusal = OkStatus();
};

// Serves until SIGTERM, until another engine has taken over, or until the executor is lost.
int Serve(const EngineConfig& config, const EngineSetup& setup, EngineCore* engine,
          EngineFlight* flight, const Clock* clock, Mailbox<EngineEvent>* events,
          SignalThread* signals, LoopPulse* pulse, PackedCheck* packed_check, StartupLog* startup) {
  StatusOr<std::unique_ptr<wire::KvEventPublisher>> kv_events = StartKvEvents(config, setup);
  if (!kv_events.ok()) return FailProcess(kExitBadFlags, kv_events.status());
  std::optional<wire::TcpKeys> tcp_keys;
  if (config.handshake_address.starts_with("tcp://") && !config.tcp_keys.empty()) {
    StatusOr<wire::TcpKeys> keys = wire::ReadTcpKeys(config.tcp_keys, wire::TcpSide::kEngine);
    if (!keys.ok()) return FailProcess(kExitBadFlags, keys.status());
    tcp_keys = *std::move(keys);
  }
  Dismissal dismissal = {.events = events};
  wire::EngineEndpoint endpoint(
      {.handshake_address = config.handshake_address,
       .engine_index = setup.engine.engine_index,
       .local = !config.headless,
       .headless = config.headless,
       .takes_over = config.take_over,
       .tcp_keys = std::move(tcp_keys),
       .on_leave = [&dismissal](const Status& why) { dismissal.On(why); }},
      [events](wire::EngineInput input) { events->Push(std::move(input)); });
  if (const Status status = endpoint.Start(); !status.ok()) {
    return FailProcess(kExitBadFlags, status);
  }
  wire::EngineCoreReadyResponse ready = ReadyResponse(config, setup);
  EngineLoopWire loop_wire = {.events = events,
                              .send =
                                  [&](int32_t client_index, wire::EngineCoreOutputs message) {
                                    endpoint.Send(client_index, std::move(message));
                                  },
                              .take_spent = [&] { return endpoint.TakeSpent(); }};
  if (*kv_events != nullptr) {
    ready.kv_events_config = wire::PackedKvEventsConfig((*kv_events)->config());
    loop_wire.publish = [&](std::vector<KvCacheEvent> changes) {
      (*kv_events)
          ->Publish(ToKvEventBatch(std::move(changes), engine->kv_cache().config(), clock->Unix()));
    };
  }
  endpoint.AnnounceReady(std::move(ready));
  AnnounceReady(config, signals, startup);
  packed_check->Begin();
  const LoopWatchdog watchdog(pulse, [flight] {
    if (flight != nullptr) flight->Write("watchdog: the loop gives no sign of life");
  });
  loop_wire.pulse = pulse;
  if (flight != nullptr) loop_wire.recorder = flight->recorder();

  std::set_new_handler(EndWithoutMemory<kExitFailed>);
  const Status end = RunEngineLoop(engine, loop_wire);
  if (!end.ok()) {
    WriteLastFlight(("the executor is lost: " + end.ToString()).c_str());
    endpoint.CloseDead();
    return FailProcess(kExitFailed, end);
  }
  endpoint.Close();
  if (!dismissal.refusal.ok()) {
    return FailProcess(kExitBadModel,
                       dismissal.refusal.WithContext("the frontend refuses this engine"));
  }
  LOG_INFO << "[shutdown] engine core ended";
  return kExitOk;
}

// Flags that decide the content of KV blocks beside the model's files. The angles of longrope
// follow from the length that the engine is started with.
std::string ModelFacts(const EngineConfig& config, const ModelConfig& model,
                       const EngineSetup& setup) {
  const bool is_dummy = config.load_format == "dummy";
  const bool has_lengths = model.rope.type == RopeType::kLongRope;
  const int64_t length = setup.runner.limits.max_model_len;
  const bool is_long = has_lengths && length > model.rope.original_max_position_embeddings;
  return std::string(DTypeName(setup.backend.dtype)) + "\n" + config.quantization + "\n" +
         config.hf_overrides + (is_dummy ? "\ndummy " + std::to_string(config.seed) : "") +
         (is_long ? "\nlong" : "");
}

// Other engines may serve the same frontend. A fingerprint of the model takes samples of its files,
// which is slow on a disk that turns, so one engine alone does without.
bool HasReplicas(const EngineConfig& config) {
  return config.data_parallel_size_local.value_or(1) > 1 ||
         config.handshake_address.starts_with("tcp://");
}

// The same where equal prompts have equal block hashes.
std::string HashOfNoBlock(const EngineSetup& setup) {
  const KvCacheConfig& cache = setup.engine.kv_cache;
  return BlockHasher(cache.block_size, cache.hash_algorithm, cache.hash_seed).none_hash().ToHex();
}

// The parts of the other ranks; workers: null: there are none.
OtherRanksAdapters AdaptersOf(WorkerProcesses* workers) {
  if (workers == nullptr) return {};
  return {.load =
              [workers](const AdapterLoad& load, uint64_t digest) {
                return workers->ReadAdapter(load.id, load.name, load.folder, digest);
              },
          .drop = [workers](AdapterId id) { workers->DropAdapter(id); }};
}

// MakeSetup failed: what is wrong with a pooler's files has another status than what is wrong with
// the flags.
int FailSetup(const EngineConfig& config, const Status& error) {
  const Status files =
      ReadPoolerConfig(config.model, {config.runner, config.convert, ""}, config.hf_overrides)
          .status();
  return files.ok() ? FailProcess(kExitBadFlags, error) : FailProcess(kExitBadModel, files);
}

// Null without --kv-transfer-config. caches: what it moves blocks of; outlives it.
StatusOr<std::unique_ptr<InProcessConnector>> StartConnector(const EngineConfig& config,
                                                             const ModelConfig& model,
                                                             const EngineSetup& setup,
                                                             ModelRunner* runner,
                                                             RankCaches* caches) {
  if (setup.kv_transfer.connector == KvTransferConfig::Connector::kNone) {
    return std::unique_ptr<InProcessConnector>();
  }
  ASSIGN_OR_RETURN(*caches, RankCaches::Map(model, setup.runner, runner));
  auto connector =
      MakeConnector(setup.kv_transfer, {.backend = &runner->backend(),
                                        .caches = caches->caches(),
                                        .num_tensor_ranks = setup.ranks.tensor,
                                        .num_stages = setup.ranks.pipeline,
                                        .model = config.model,
                                        .facts = ModelFacts(config, model, setup),
                                        .hashes = HashOfNoBlock(setup),
                                        .reports_events = setup.engine.kv_cache.enable_events});
  if (!connector.ok()) return connector.status().WithContext("--kv-transfer-config");
  return connector;
}

// What a sleep beside a connector needs; nothing without --enable-sleep-mode.
StatusOr<TransferSleep> SleepOf(const EngineConfig& config, const ModelConfig& model,
                                const EngineSetup& setup, const RankCaches& caches) {
  if (!config.enable_sleep_mode) return TransferSleep();
  TransferSleep sleep;
  sleep.caches = caches.caches();
  sleep.current_fingerprint = [path = config.model, facts = ModelFacts(config, model, setup)] {
    return ModelFingerprint(path, facts);
  };
  ASSIGN_OR_RETURN(sleep.fingerprint, sleep.current_fingerprint());
  return sleep;
}

// Null where nothing is recorded. executor, grammars: what the engine has without a recorder.
StatusOr<std::unique_ptr<EngineFlight>> StartFlight(const EngineConfig& config,
                                                    const EngineSetup& setup,
                                                    std::string_view backend, const Clock* clock,
                                                    Executor* executor, RequestGrammars* grammars) {
  if (!config.flight_recorder) return std::unique_ptr<EngineFlight>();
  if (setup.engine.kv_connector != nullptr) {
    LOG_INFO << "[flight recorder] off: what a KV connector loads cannot be replayed";
    return std::unique_ptr<EngineFlight>();
  }
  // A replay on another host must not choose other defaults.
  EngineConfig recorded = config;
  recorded.max_step_ms = MaxStepMsOf(config, setup.device);
  recorded.max_num_seqs = setup.runner.limits.max_num_seqs;
  recorded.max_num_batched_tokens = setup.runner.limits.max_num_batched_tokens;
  return EngineFlight::Start(recorded, setup, std::string(backend), clock, executor, grammars);
}

int LoadAndServe(const EngineConfig& config, StartupLog* startup, const Clock* clock) {
  Mailbox<EngineEvent> events;
  std::unique_ptr<EngineFlight> flight;
  SignalThread signals(&events);
  const StatusOr<ModelConfig> model_config = ReadModelConfig(config.model, config.hf_overrides);
  if (!model_config.ok()) return FailProcess(kExitBadModel, model_config.status());
  StatusOr<EngineSetup> setup = MakeSetup(config, *model_config);
  if (!setup.ok()) return FailSetup(config, setup.status());
  if (const Status bound = BindOwnRank(config); !bound.ok())
    return FailProcess(kExitBadFlags, bound);
  startup->Done("config", "Tandem " + std::string(kVersion) + ", " + config.model + " (" +
                              model_config->architecture + "), max_model_len " +
                              WithCommas(setup->runner.limits.max_model_len));
  PackedCheck packed_check(EndDamaged);
  StatusOr<LoadedRunner> loaded =
      LoadRunner(config, *model_config, &*setup, startup, EndWithoutRank, &packed_check);
  if (!loaded.ok()) return FailProcess(kExitBadModel, loaded.status());
  const auto fail = [&](const Status& status) {
    return FailProcess(kExitBadModel, loaded->WithAdvice(status, *setup));
  };
  LoopPulse pulse;
  WorkerProcesses* workers = loaded->workers.get();
  if (workers != nullptr) workers->Watch(EndWithoutRank);
  std::optional<WatchedExecutor> watched;
  Executor* executor = loaded->runner.get();
  if (setup->step_timeout_s > 0 || config.worker_timeout_seconds > 0) {
    const auto end_overdue = [workers](const std::string& what) {
      EndLost(workers == nullptr ? what : what + "; " + workers->Positions());
    };
    executor = &watched.emplace(executor, setup->step_timeout_s, clock, end_overdue,
                                LookAtSteps(config, *loaded, &pulse));
  }
  RankCaches caches;
  const StatusOr<std::unique_ptr<InProcessConnector>> connector =
      StartConnector(config, *model_config, *setup, loaded->runner.get(), &caches);
  if (!connector.ok()) return FailProcess(kExitBadFlags, connector.status());
  std::optional<TransferringExecutor> transferring;
  if (*connector != nullptr) {
    setup->engine.kv_connector = connector->get();
    StatusOr<TransferSleep> sleep = SleepOf(config, *model_config, *setup, caches);
    if (!sleep.ok()) return fail(sleep.status());
    executor = &transferring.emplace(executor, connector->get(), *std::move(sleep));
  }
  StatusOr<std::unique_ptr<GrammarService>> grammars =
      StartGrammars(config, *setup, clock, &events);
  if (!grammars.ok()) return fail(grammars.status());
  setup->engine.grammars = grammars->get();
  std::optional<AdapterLoader> adapters;
  if (loaded->adapter_reader != nullptr) {
    setup->engine.adapter_loads = &adapters.emplace(
        loaded->adapter_reader.get(),
        [&events](AdapterLoaded adapter) { events.Push(std::move(adapter)); }, AdaptersOf(workers));
  }
  setup->engine.cache_facts = CacheFacts(config, *model_config, *setup);
  if (HasReplicas(config)) {
    const auto fingerprint =
        ModelFingerprint(config.model, ModelFacts(config, *model_config, *setup));
    std::vector<std::string>& facts = setup->engine.cache_facts;
    if (fingerprint.ok()) facts.insert(facts.end(), {"tandem_model", *fingerprint});
  }
  setup->engine.startup = startup->phases();
  auto recording = StartFlight(config, *setup, loaded->runner->backend().description(), clock,
                               executor, grammars->get());
  if (!recording.ok()) return fail(recording.status());
  flight = *std::move(recording);
  const Clock* engine_clock = clock;
  if (flight != nullptr) {
    signals.OnStateRequest(flight.get());
    setup->engine.grammars = flight->grammars();
    executor = flight->executor();
    engine_clock = flight->clock();
  }
  StatusOr<std::unique_ptr<EngineCore>> engine =
      EngineCore::Create(setup->engine, executor, engine_clock);
  if (!engine.ok()) return fail(engine.status());
  return Serve(config, *setup, engine->get(), flight.get(), clock, &events, &signals, &pulse,
               &packed_check, startup);
}

// What can be known without weights, memory and sockets.
int CheckConfig(const EngineConfig& config) {
  const StatusOr<ModelConfig> model = ReadModelConfig(config.model, config.hf_overrides);
  if (!model.ok()) return FailProcess(kExitBadModel, model.status());
  const StatusOr<EngineSetup> setup = MakeSetup(config, *model);
  if (!setup.ok()) return FailSetup(config, setup.status());
  const auto cpus = ParseCpuBind(config.cpu_bind, RankCountsOf(config).num_ranks());
  return cpus.ok() ? kExitOk : FailProcess(kExitBadFlags, cpus.status());
}

int RunEngineCore(const std::vector<std::string>& args) {
  std::set_new_handler(EndWithoutMemory<kExitBadModel>);
  const SystemClock clock;
  StartupLog startup(&clock);
  if (const std::optional<int> rank = WorkerRankOf(args)) {
    return RunWorker(*rank, {args.begin() + 1, args.end()}, &startup);
  }
  EngineConfig config;
  ReplayConfig replay;
  PackConfig pack;
  bool check_config = false;
  std::vector<Flag> table = EngineFlags(config);
  table.push_back(
      {"check-config", &check_config,
       "Check all values and the model's config, name what is wrong, and start nothing"});
  for (Flag& flag : ReplayFlags(replay)) table.push_back(std::move(flag));
  for (Flag& flag : PackFlags(pack)) table.push_back(std::move(flag));
  const StatusOr<FlagOutcome> flags = ParseFlags(table, args, kAbout);
  if (flags.ok() && *flags == FlagOutcome::kHelpShown) return kExitOk;
  Status logging = InitLog("EngineCore", config.log_level);
  if (logging.ok()) logging = SetLogFormat(config.log_format);
  if (logging.ok() && check_config) logging = SetLogLevel("WARNING");
  SetThreadName("tandem-engine");  // the main thread's name is the process's
  if (!logging.ok()) {
    std::fprintf(stderr, "tandem-engine-core: %s\n", logging.message().c_str());
    return kExitBadFlags;
  }
  if (!flags.ok()) return FailProcess(kExitBadFlags, flags.status());
  // A replay and a packing have nothing to end in order.
  if (!replay.file.empty() || !pack.out.empty() || pack.verifies) {
    const sigset_t signals = HandledSignals();
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  }
  if (!replay.file.empty()) return RunReplay(replay, args, &startup);
  if (const Status status = Finish(config); !status.ok()) return FailProcess(kExitBadFlags, status);
  if (pack.verifies) return RunVerify(config.model, &startup);
  if (!pack.out.empty()) return RunPack(config, pack, &startup);
  if (const Status status = FollowPackedFile(&config); !status.ok()) {
    return FailProcess(kExitBadModel, status);
  }
  if (check_config) return CheckConfig(config);
  constexpr int kOtherThreads = 13;  // and processes: tandem-grammar and what it forks ahead
  const int num_threads = static_cast<int>(config.threads) + kOtherThreads;
  if (const Status status = CheckThreadRoom(num_threads); !status.ok()) {
    return FailProcess(kExitFailed, status);
  }
  StartLogThread();
  return LoadAndServe(config, &startup, &clock);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  if (!tandem::StartProgram("tandem-engine-core")) return tandem::kExitFailed;
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit on file sizes fails like one on a full disk
  const sigset_t signals = tandem::HandledSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // of every thread, so that one gets them
  return tandem::RunEngineCore({argv + 1, argv + argc});
}
