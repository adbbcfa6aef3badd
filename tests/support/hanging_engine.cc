// An engine core without a model whose executor can be made to hang or to fail, for tests of what
// the pair does then: a prompt that ends in token 77 hangs in Submit, in 78 in Collect, as a device
// would; one that ends in 79 computes for kLongSeconds, as a long prefill does; after 80 and 81 the
// device fails in the kFailingStep-th step, in Submit and in Collect.
// The loop, the watcher, the wire and the flags are those of tandem-engine-core; tokens are the
// simulator's.

#include <signal.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/log.h"
#include "common/mailbox.h"
#include "common/sd_notify.h"
#include "common/version.h"
#include "engine_core/config.h"
#include "engine_core/engine_core.h"
#include "engine_core/executor/watched_executor.h"
#include "engine_core/models/registry.h"
#include "engine_core/watchdog.h"
#include "proto_msgpack/wire_endpoint.h"
#include "tests/simulation/sim_executor.h"

namespace tandem {
namespace {

constexpr TokenId kHangsInSubmit = 77, kHangsInCollect = 78, kComputesLong = 79;
constexpr TokenId kFailsInSubmit = 80, kFailsInCollect = 81;
constexpr int kFailingStep = 5;
constexpr double kLongSeconds = 3;
constexpr int kLost = 1, kBadStart = 2;

[[noreturn]] void Hang() {
  Mailbox<int> nobody;
  for (;;) nobody.Wait();
}

void Compute(double seconds) {
  const SystemClock clock;
  const double end = clock.Monotonic() + seconds;
  while (clock.Monotonic() < end) {
  }
}

class HangingExecutor final : public Executor {
 public:
  explicit HangingExecutor(const ExecutorLimits& limits) : executor_(limits) {}
  const ExecutorLimits& limits() const override { return executor_.limits(); }
  Status Submit(const SchedulerOutput& step) override {
    for (const AdmittedRequest& admitted : step.admitted) {
      const TokenId last = admitted.token_ids[static_cast<size_t>(admitted.num_prompt_tokens) - 1];
      if (last == kHangsInSubmit) Hang();
      if (last == kHangsInCollect) hangs_in_collect_ = true;
      if (last == kComputesLong) Compute(kLongSeconds);
      if (last == kFailsInSubmit) submits_left_ = kFailingStep;
      if (last == kFailsInCollect) collects_left_ = kFailingStep;
    }
    if (--submits_left_ == 0) return InternalError("the device has failed in Submit");
    return executor_.Submit(step);
  }
  Status Collect(ModelOutput* result) override {
    if (hangs_in_collect_) Hang();
    if (--collects_left_ == 0) return InternalError("the device has failed in Collect");
    return executor_.Collect(result);
  }

 private:
  SimExecutor executor_;
  bool hangs_in_collect_ = false;
  int64_t submits_left_ = 0, collects_left_ = 0;  // below 1: it does not fail
};

int Fail(const Status& status) {
  LOG_ERROR << status.message();
  return kBadStart;
}

int Run(const std::vector<std::string>& args) {
  EngineConfig config;
  const StatusOr<FlagOutcome> flags = ParseFlags(EngineFlags(config), args, "hanging engine");
  if (const Status status = InitLog("EngineCore", config.log_level); !status.ok()) return kBadStart;
  if (!flags.ok()) return Fail(flags.status());
  if (const Status status = Finish(config); !status.ok()) return Fail(status);
  const StatusOr<ModelConfig> model = ReadModelConfig(config.model);
  if (!model.ok()) return Fail(model.status());
  StatusOr<EngineSetup> setup = MakeSetup(config, *model);
  if (!setup.ok()) return Fail(setup.status());
  ExecutorLimits& limits = setup->runner.limits;
  limits.num_blocks = 257;

  const SystemClock clock;
  HangingExecutor hanging(limits);
  std::optional<WatchedExecutor> watched;
  Executor* executor = &hanging;
  if (setup->step_timeout_s > 0) {
    executor =
        &watched.emplace(&hanging, setup->step_timeout_s, &clock, [](const std::string& what) {
          LOG_FATAL << "the executor does not answer: " << what;
          _exit(kLost);
        });
  }
  StatusOr<std::unique_ptr<EngineCore>> engine =
      EngineCore::Create(setup->engine, executor, &clock);
  if (!engine.ok()) return Fail(engine.status());
  Mailbox<EngineEvent> events;
  wire::EngineEndpoint endpoint(
      {.handshake_address = config.handshake_address},
      [&events](wire::EngineInput input) { events.Push(std::move(input)); });
  if (const Status status = endpoint.Start(); !status.ok()) return Fail(status);
  wire::EngineCoreReadyResponse ready;
  ready.max_model_len = limits.max_model_len;
  ready.num_gpu_blocks = limits.num_blocks;
  ready.block_size = limits.block_size;
  ready.tandem_version = kVersion;
  endpoint.AnnounceReady(std::move(ready));
  if (const Status status = SdNotify("READY=1"); !status.ok()) return Fail(status);
  LoopPulse pulse;
  const LoopWatchdog watchdog(&pulse);
  const EngineLoopWire wire = {.events = &events,
                               .send =
                                   [&](int32_t client_index, wire::EngineCoreOutputs message) {
                                     endpoint.Send(client_index, std::move(message));
                                   },
                               .take_spent = [&] { return endpoint.TakeSpent(); },
                               .publish = {},
                               .pulse = &pulse};
  return RunEngineLoop(engine->get(), wire).ok() ? 0 : kLost;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  return tandem::Run({argv + 1, argv + argc});
}
