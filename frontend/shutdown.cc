#include "frontend/shutdown.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <utility>

#include "common/clock.h"
#include "common/log.h"
#include "common/sd_notify.h"
#include "frontend/engine_client/engine_client.h"
#include "frontend/http/listener.h"

namespace tandem {
namespace {

constexpr double kEndSeconds = 1;  // for clients to read how their requests ended
constexpr double kCutSeconds = 2;  // for handlers to end after their connections were cut

// Each running request gets a response: 503, or an error event after what was streamed.
void EndRequests(const std::vector<std::unique_ptr<EngineClient>>& clients) {
  for (const auto& client : clients) {
    client->RunOnShard([ending = client.get()] {
      ending->EndAll(UnavailableError("the server is shutting down"));
    });
  }
}

enum class StageEnd { kDrained, kSignal, kTimeout };

StageEnd WaitForStageEnd(double timeout_s, Mailbox<ShutdownEvent>* events) {
  const SystemClock clock;
  const double deadline = clock.Monotonic() + timeout_s;
  std::vector<ShutdownEvent> arrived;
  for (double left = timeout_s; left > 0; left = deadline - clock.Monotonic()) {
    events->WaitFor(std::chrono::nanoseconds(static_cast<int64_t>(left * 1e9)));
    events->Drain(&arrived);
    for (const ShutdownEvent event : arrived) {
      if (event == ShutdownEvent::kDrained) return StageEnd::kDrained;
    }
    for (const ShutdownEvent event : arrived) {
      if (event == ShutdownEvent::kSignal) return StageEnd::kSignal;
    }
  }
  return StageEnd::kTimeout;
}

}  // namespace

StatusOr<int> OpenSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const int fd = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return ErrnoError(errno, "signalfd");
  return fd;
}

ProcessSignals::ProcessSignals(Shard* shard, int fd, Calls calls)
    : calls_(std::move(calls)), socket_(shard, fd) {
  Watch();
}

void ProcessSignals::Watch() {
  socket_.NotifyReadable([this] {
    signalfd_siginfo info;
    while (::read(socket_.fd(), &info, sizeof info) == sizeof info) Handle(info.ssi_signo);
    Watch();
  });
}

void ProcessSignals::Handle(uint32_t signal) {
  switch (signal) {
    case SIGTERM:
    case SIGINT:
      events_.Push(ShutdownEvent::kSignal);
      return;
    case SIGHUP:
      return calls_.reload();
    case SIGUSR1:
      return calls_.log_state();
    case SIGUSR2:
      return calls_.hand_over();
    default:
      LOG_INFO << "signal " << signal << " has no meaning here";
  }
}

bool WaitForEnd(HttpServer* server, Mailbox<ShutdownEvent>* events) {
  std::vector<ShutdownEvent> arrived;
  while (true) {
    events->Wait();
    events->Drain(&arrived);
    for (const ShutdownEvent event : arrived) {
      if (event != ShutdownEvent::kRetired) return event == ShutdownEvent::kSignal;
      server->WhenDrained([events] { events->Push(ShutdownEvent::kDrained); });
    }
  }
}

void Drain(HttpServer* server, const std::vector<std::unique_ptr<EngineClient>>& clients,
           double timeout_s, Mailbox<ShutdownEvent>* events) {
  LOG_INFO << "[shutdown] " << server->num_requests() << " open requests, up to " << timeout_s
           << " s for them";
  (void)SdNotify("STOPPING=1");
  server->BeginDrain();
  server->WhenDrained([events] { events->Push(ShutdownEvent::kDrained); });
  if (WaitForStageEnd(timeout_s, events) == StageEnd::kDrained) return;
  EndRequests(clients);
  if (WaitForStageEnd(kEndSeconds, events) == StageEnd::kDrained) return;
  server->CloseAll();
  WaitForStageEnd(kCutSeconds, events);
}

}  // namespace tandem
