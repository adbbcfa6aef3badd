// tandem-engine-core: owns the model and runs it step by step for the frontend at
// --handshake-address. Exit status: common/exit_status.h.

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <new>
#include <optional>
#include <thread>

#include "common/clock.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/mailbox.h"
#include "common/sd_notify.h"
#include "common/strings.h"
#include "common/version.h"
#include "engine_core/config.h"
#include "engine_core/engine_core.h"
#include "engine_core/executor/memory_plan.h"
#include "engine_core/executor/model_runner.h"
#include "engine_core/executor/watched_executor.h"
#include "engine_core/grammar/grammar_process.h"
#include "engine_core/grammar/grammar_service.h"
#include "engine_core/kv_event_batch.h"
#include "engine_core/models/registry.h"
#include "engine_core/watchdog.h"
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

 private:
  static constexpr int kStopWaiting = SIGUSR2;

  void Run() {
    SetThreadName("signals");
    const sigset_t signals = HandledSignals();
    while (!is_over_) {
      int signal = 0;
      sigwait(&signals, &signal);
      if (signal == SIGTERM || signal == SIGINT) Stop(signal);
      if (signal == SIGUSR1) events_->Push(LogStateRequest{});
      if (signal == SIGHUP) LOG_INFO << "[reload] the engine core has nothing to read again";
    }
  }
  void Stop(int signal) {
    if (!serving_) {
      LOG_INFO << "[shutdown] " << strsignal(signal) << " while loading";
      _exit(kExitOk);
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
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

int Fail(ExitStatus exit_status, const Status& status) {
  LOG_ERROR << status.message();
  return exit_status;
}

// Runs when `new` fails, in place of an exception that nothing would catch.
template <ExitStatus exit_status>
void EndWithoutMemory() {
  std::set_new_handler(nullptr);  // the log line below allocates
  LOG_FATAL << "this process gets no more memory; lower --max-num-seqs, --max-model-len "
               "or --max-num-batched-tokens";
  _exit(exit_status);
}

// Without cleaning up: the loop's thread cannot be joined, and the supervisor starts a new process.
void EndLost(const std::string& what) {
  LOG_FATAL << "the executor does not answer: " << what;
  _exit(kExitFailed);
}

StatusOr<std::unique_ptr<Backend>> MakeBackend(const EngineSetup& setup) {
  if (setup.device == "reference") return MakeReferenceBackend();
  if (setup.device == "cuda") {
    return MakeCudaBackend({.dtype = setup.backend.dtype,
                            .num_threads = setup.backend.num_threads,
                            .attention = setup.attention});
  }
  return MakeCpuBackend(setup.backend);
}

// The memory of the device that will hold the KV cache.
HostMemory ReadMemory(const Backend& backend) {
  if (backend.device().memory_is_host()) return ReadHostMemory();
  const DeviceMemory memory = backend.device().memory();
  return {.total_bytes = memory.total_bytes,
          .available_bytes = memory.free_bytes,
          .resident_bytes = memory.total_bytes - memory.free_bytes};
}

StatusOr<std::unique_ptr<Weights>> OpenWeights(const EngineConfig& config) {
  if (config.load_format == "dummy") return MakeDummyWeights(static_cast<uint64_t>(config.seed));
  return OpenSafetensors(config.model);
}

std::string Fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

// Logs each phase of the start with its duration.
class StartupLog {
 public:
  explicit StartupLog(const Clock* clock)
      : clock_(clock), started_(clock->Monotonic()), last_(started_) {}
  void Done(std::string_view phase, const std::string& what = "") {
    const double now = clock_->Monotonic();
    LOG_INFO << "[startup] " << phase << " in " << Fixed((now - last_) * 1e3, 1) << " ms"
             << (what.empty() ? "" : ": ") << what;
    last_ = now;
  }
  double total_s() const { return clock_->Monotonic() - started_; }

 private:
  const Clock* clock_;
  const double started_;
  double last_;
};

struct CacheSize {
  int64_t tokens = 0;
  double max_concurrency = 0;  // requests of max_model_len tokens
};

CacheSize SizeOf(const ExecutorLimits& limits) {
  const int64_t tokens = int64_t{limits.num_blocks - 1} * limits.block_size;
  if (limits.sliding_window == 0) {
    return {tokens, static_cast<double>(tokens) / limits.max_model_len};
  }
  const int32_t num_held = MaxHeldBlocks(CacheWithLimits({}, limits));
  return {tokens, static_cast<double>(limits.num_blocks - 1) / num_held};
}

wire::EngineCoreReadyResponse ReadyResponse(const EngineSetup& setup) {
  const ExecutorLimits& limits = setup.runner.limits;
  const CacheSize cache = SizeOf(limits);
  wire::EngineCoreReadyResponse ready;
  ready.max_model_len = limits.max_model_len;
  ready.num_gpu_blocks = limits.num_blocks;
  ready.block_size = limits.block_size;
  ready.dtype = std::string(DTypeName(setup.backend.dtype));
  ready.vllm_version = kVllmVersion;
  ready.data_parallel_rank = setup.engine.engine_index;
  ready.max_num_seqs = limits.max_num_seqs;
  ready.max_num_batched_tokens = limits.max_num_batched_tokens;
  ready.instance_id = RandomHex(16);
  ready.kv_cache_size_tokens = cache.tokens;
  ready.kv_cache_max_concurrency = cache.max_concurrency;
  ready.tandem_version = kVersion;
  return ready;
}

// nullptr when KV events are off.
StatusOr<std::unique_ptr<wire::KvEventPublisher>> StartKvEvents(const EngineSetup& setup) {
  if (!setup.kv_events.publishes()) return std::unique_ptr<wire::KvEventPublisher>();
  if (!setup.engine.kv_cache.enable_events) {
    LOG_WARNING << "no KV events will be published: prefix caching is off";
  }
  auto publisher = std::make_unique<wire::KvEventPublisher>(
      wire::KvEventPublisherOptions{.config = setup.kv_events,
                                    .data_parallel_rank = setup.engine.engine_index,
                                    .hash_form = KvHashFormFromEnvironment()});
  RETURN_IF_ERROR(publisher->Start());
  return publisher;
}

// Allocates the KV cache and captures graphs. On a device the cache gets what the largest step
// leaves free, which is measured by running it.
Status FinishRunner(int64_t bytes_per_block, ModelRunner* runner, EngineSetup* setup,
                    StartupLog* startup) {
  const bool is_device = !runner->backend().device().memory_is_host();
  if (is_device) {
    const int64_t free_before = runner->backend().device().memory().free_bytes;
    RETURN_IF_ERROR(runner->RunFirstSteps());
    const DeviceMemory after = runner->backend().device().memory();
    startup->Done("first steps",
                  "up to " + WithCommas(setup->runner.limits.max_num_batched_tokens) +
                      " tokens, keeps " + WithCommas((free_before - after.free_bytes) >> 20) +
                      " MiB; " + WithCommas(after.free_bytes >> 20) + " of " +
                      WithCommas(after.total_bytes >> 20) + " MiB are free");
  }
  RETURN_IF_ERROR(SizeKvCache(bytes_per_block, ReadMemory(runner->backend()), setup));
  const ExecutorLimits& limits = setup->runner.limits;
  RETURN_IF_ERROR(runner->AllocateKvCache(limits.num_blocks, limits.max_model_len));
  if (!is_device) return OkStatus();
  startup->Done("KV cache memory");
  RETURN_IF_ERROR(runner->CaptureGraphs());
  startup->Done("CUDA graphs", std::to_string(runner->num_graphs()) + " of decode steps");
  return OkStatus();
}

void LogAttention(const EngineSetup& setup) {
  if (setup.device != "cuda") return;
  LOG_INFO << "Using "
           << (setup.attention == AttentionBackend::kFlashInfer ? "flashinfer" : "tandem")
           << " attention backend: " << setup.attention_reason;
}

int64_t KvBytesPerBlock(const ModelConfig& config, const Backend& backend,
                        const EngineSetup& setup) {
  return backend.KvBytesPerBlock(
      KvSpecOf(config, setup.runner.limits.block_size, 0, setup.runner.kv_format));
}

// Chooses max_model_len where it is auto and plans the memory. The plan is set on failure too: the
// error's advice needs it.
Status PlanStart(const ModelConfig& config, const Backend& backend, const HostMemory& memory,
                 EngineSetup* setup) {
  const int64_t bytes_per_block = KvBytesPerBlock(config, backend, *setup);
  ExecutorLimits& limits = setup->runner.limits;
  const StatusOr<int32_t> max_model_len =
      ChooseMaxModelLen(setup->auto_max_model_len, bytes_per_block, limits, memory);
  if (max_model_len.ok()) limits.max_model_len = *max_model_len;
  setup->memory_plan = PlanMemory(config, limits,
                                  {.dtype = setup->backend.dtype,
                                   .formats = setup->formats,
                                   .kv_bytes_per_block = bytes_per_block,
                                   .is_device = !backend.device().memory_is_host()});
  if (!max_model_len.ok()) return max_model_len.status();
  return CheckFits(*setup->memory_plan, memory);
}

// Packs the weights, then makes the runner and its KV cache from the memory that is left.
StatusOr<std::unique_ptr<ModelRunner>> LoadRunner(const EngineConfig& config,
                                                  const ModelConfig& model_config,
                                                  std::unique_ptr<Backend> backend,
                                                  EngineSetup* setup, StartupLog* startup) {
  ASSIGN_OR_RETURN(std::unique_ptr<Weights> weights, OpenWeights(config));
  startup->Done("weights mapped");
  const int64_t bytes_per_block = KvBytesPerBlock(model_config, *backend, *setup);
  const ModelLimits model_limits = ModelLimitsOf(setup->runner.limits);
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                   LoadModel({model_config, model_limits, *weights, *backend, setup->formats}));
  weights.reset();
  startup->Done("weights packed",
                "about " + WithCommas(setup->memory_plan->weights >> 20) + " MiB");
  ASSIGN_OR_RETURN(std::unique_ptr<ModelRunner> runner,
                   ModelRunner::CreateWithoutCache(std::move(backend), std::move(model),
                                                   model_config, setup->runner));
  startup->Done("step buffers");
  RETURN_IF_ERROR(FinishRunner(bytes_per_block, runner.get(), setup, startup));
  const ExecutorLimits& limits = setup->runner.limits;
  const CacheSize cache = SizeOf(limits);
  startup->Done("KV cache", std::string(setup->device == "cuda" ? "GPU" : "CPU") +
                                " KV cache size: " + WithCommas(cache.tokens) + " tokens (" +
                                WithCommas(limits.num_blocks) + " blocks of " +
                                std::to_string(limits.block_size) + ", " +
                                WithCommas(limits.num_blocks * bytes_per_block >> 20) + " MiB)");
  LOG_INFO << "Maximum concurrency for " << WithCommas(limits.max_model_len)
           << " tokens per request: " << Fixed(cache.max_concurrency, 2) << "x";
  return runner;
}

StatusOr<std::unique_ptr<GrammarService>> StartGrammars(const EngineConfig& config,
                                                        const EngineSetup& setup,
                                                        const Clock* clock,
                                                        Mailbox<EngineEvent>* events) {
  const ExecutorLimits& limits = setup.runner.limits;
  return GrammarService::Create(
      {.program = GrammarProgramPath(),
       .model_folder = config.model,
       .vocab_size = limits.vocab_size,
       .max_num_seqs = limits.max_num_seqs,
       .defaults = setup.grammars.defaults},
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

// Serves until SIGTERM, or until the executor is lost.
int Serve(const EngineConfig& config, const EngineSetup& setup, EngineCore* engine,
          const Clock* clock, Mailbox<EngineEvent>* events, SignalThread* signals,
          StartupLog* startup) {
  StatusOr<std::unique_ptr<wire::KvEventPublisher>> kv_events = StartKvEvents(setup);
  if (!kv_events.ok()) return Fail(kExitBadFlags, kv_events.status());
  wire::EngineEndpoint endpoint(
      {.handshake_address = config.handshake_address, .engine_index = setup.engine.engine_index},
      [events](wire::EngineInput input) { events->Push(std::move(input)); });
  if (const Status status = endpoint.Start(); !status.ok()) return Fail(kExitBadFlags, status);
  wire::EngineCoreReadyResponse ready = ReadyResponse(setup);
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
  LoopPulse pulse;
  const LoopWatchdog watchdog(&pulse);
  loop_wire.pulse = &pulse;

  std::set_new_handler(EndWithoutMemory<kExitFailed>);
  const Status end = RunEngineLoop(engine, loop_wire);
  if (!end.ok()) {
    endpoint.CloseDead();
    return Fail(kExitFailed, end);
  }
  endpoint.Close();
  LOG_INFO << "[shutdown] engine core ended";
  return kExitOk;
}

int LoadAndServe(const EngineConfig& config, StartupLog* startup, const Clock* clock) {
  Mailbox<EngineEvent> events;
  SignalThread signals(&events);
  const StatusOr<ModelConfig> model_config = ReadModelConfig(config.model);
  if (!model_config.ok()) return Fail(kExitBadModel, model_config.status());
  StatusOr<EngineSetup> setup = MakeSetup(config, *model_config);
  if (!setup.ok()) return Fail(kExitBadFlags, setup.status());
  startup->Done("config", "Tandem " + std::string(kVersion) + ", " + config.model + " (" +
                              model_config->architecture + "), max_model_len " +
                              WithCommas(setup->runner.limits.max_model_len));
  StatusOr<std::unique_ptr<Backend>> backend = MakeBackend(*setup);
  if (!backend.ok()) return Fail(kExitBadModel, backend.status());
  startup->Done("device", std::string((*backend)->description()) + ", dtype " +
                              std::string(DTypeName(setup->backend.dtype)) + ", quantization " +
                              config.quantization);
  LogAttention(*setup);
  // Read before anything is allocated.
  const HostMemory memory = ReadMemory(**backend);
  const auto fail = [&](const Status& status) {
    return Fail(kExitBadModel, WithMemoryAdvice(status, *setup->memory_plan, memory));
  };
  if (const Status fits = PlanStart(*model_config, **backend, memory, &*setup); !fits.ok()) {
    return fail(fits);
  }
  StatusOr<std::unique_ptr<ModelRunner>> runner =
      LoadRunner(config, *model_config, *std::move(backend), &*setup, startup);
  if (!runner.ok()) return fail(runner.status());
  std::optional<WatchedExecutor> watched;
  Executor* executor = runner->get();
  if (setup->step_timeout_s > 0) {
    executor = &watched.emplace(runner->get(), setup->step_timeout_s, clock, EndLost);
  }
  StatusOr<std::unique_ptr<GrammarService>> grammars =
      StartGrammars(config, *setup, clock, &events);
  if (!grammars.ok()) return fail(grammars.status());
  setup->engine.grammars = grammars->get();
  StatusOr<std::unique_ptr<EngineCore>> engine = EngineCore::Create(setup->engine, executor, clock);
  if (!engine.ok()) return fail(engine.status());
  return Serve(config, *setup, engine->get(), clock, &events, &signals, startup);
}

int RunEngineCore(const std::vector<std::string>& args) {
  std::set_new_handler(EndWithoutMemory<kExitBadModel>);
  const SystemClock clock;
  StartupLog startup(&clock);
  EngineConfig config;
  const StatusOr<FlagOutcome> flags = ParseFlags(EngineFlags(config), args, kAbout);
  if (flags.ok() && *flags == FlagOutcome::kHelpShown) return kExitOk;
  const Status logging = InitLog("EngineCore", config.log_level);
  SetThreadName("tandem-engine");  // the main thread's name is the process's
  if (!logging.ok()) std::fprintf(stderr, "%s\n", logging.message().c_str());
  if (!flags.ok()) return Fail(kExitBadFlags, flags.status());
  if (const Status status = Finish(config); !status.ok()) return Fail(kExitBadFlags, status);
  return LoadAndServe(config, &startup, &clock);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  const sigset_t signals = tandem::HandledSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // of every thread, so that one gets them
  return tandem::RunEngineCore({argv + 1, argv + argc});
}
