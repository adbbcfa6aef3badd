#include "engine_core/kv_remote/server.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "common/log.h"

namespace tandem {
namespace {

constexpr size_t kMaxSessions = 128;
constexpr double kMaxSleepSeconds = 60;
// After a failure to accept, as when the process has no descriptor left.
constexpr double kPauseSeconds = 0.1;

}  // namespace

StatusOr<std::unique_ptr<KvServer>> KvServer::Start(KvServerOptions options, BlockParts parts,
                                                    KvShape shape, UniqueFd memory,
                                                    std::function<void(RequestId)> on_released) {
  ASSIGN_OR_RETURN(UniqueFd socket, ListenAt(&options.address));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return ErrnoError(errno, "eventfd");
  KvHoldings holdings = {.parts = std::move(parts),
                         .shape = std::move(shape),
                         .lease_s = options.lease_s,
                         .leases = KvLeaseTable(options.lease_s, options.max_leased_blocks),
                         .memory = std::move(memory)};
  return std::unique_ptr<KvServer>(new KvServer(std::move(options), std::move(socket),
                                                std::move(wake), std::move(holdings),
                                                std::move(on_released)));
}

KvServer::KvServer(KvServerOptions options, UniqueFd socket, UniqueFd wake, KvHoldings holdings,
                   std::function<void(RequestId)> on_released)
    : options_(std::move(options)),
      socket_(std::move(socket)),
      wake_(std::move(wake)),
      on_released_(std::move(on_released)),
      commands_([fd = wake_.get()] { eventfd_write(fd, 1); }),
      holdings_(std::move(holdings)),
      thread_([this] { Run(); }) {}

KvServer::~KvServer() {
  commands_.Close();
  thread_.join();
  if (options_.address.is_unix()) unlink(options_.address.path.c_str());
}

void KvServer::Run() {
  SetThreadName("kv-remote-serve");
  while (!commands_.closed()) {
    Poll(kMaxSleepSeconds);
    // A reader may have the ticket of a lease as soon as that has been pushed.
    TakeCommands();
    Serve();
    if ((polled_[1].revents & POLLIN) != 0) Accept();
    if (holdings_.leases.lacks_room()) MakeRoom();
    EndLeases();
  }
}

void KvServer::Poll(double most_seconds) {
  polled_.clear();
  polled_.push_back({wake_.get(), POLLIN, 0});
  double next = holdings_.leases.next_end();
  const bool accepts = clock_.Monotonic() >= accepts_from_;
  polled_.push_back({socket_.get(), static_cast<int16_t>(accepts ? POLLIN : 0), 0});
  if (!accepts) next = std::min(next, accepts_from_);
  for (const auto& session : sessions_) {
    polled_.push_back({session->fd(), session->events(), 0});
    next = std::min(next, session->deadline());
  }
  const double seconds = std::clamp(next - clock_.Monotonic(), 0.0, most_seconds);
  const int sleep_ms = most_seconds > 0 ? static_cast<int>(seconds * 1000) + 1 : 0;
  if (poll(polled_.data(), polled_.size(), sleep_ms) < 0) {
    for (pollfd& one : polled_) one.revents = 0;  // EINTR
  }
}

void KvServer::TakeCommands() {
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
  commands_.Drain(&taken_);
  for (Command& command : taken_) {
    if (command.lease) {
      holdings_.leases.Add(*std::move(command.lease), clock_.Monotonic());
    } else if (holdings_.leases.GiveUp(command.given_up)) {
      on_released_(std::move(command.given_up));
    }
  }
}

// What readers sent before the youngest lease was pushed is there, and may release others.
void KvServer::MakeRoom() {
  Poll(0);
  Serve();
  for (RequestId& id : holdings_.leases.MakeRoom()) {
    WarnRarely("had to make room for younger ones", &num_crowded_out_);
    on_released_(std::move(id));
  }
}

void KvServer::Serve() {
  const double now = clock_.Monotonic();
  for (size_t i = 0; i < sessions_.size(); ++i) {
    const int16_t ready = polled_[i + 2].revents;
    Status status = ready != 0 ? sessions_[i]->OnReady(ready, now) : OkStatus();
    if (status.ok() && now >= sessions_[i]->deadline()) {
      status = Status(StatusCode::kDeadlineExceeded, "the reader does nothing");
    }
    if (status.ok()) continue;
    LOG_DEBUG << "a reader of KV is disconnected: " << status.message();
    sessions_[i].reset();
  }
  std::erase(sessions_, nullptr);
}

void KvServer::Accept() {
  while (true) {
    UniqueFd fd(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd && errno != EAGAIN) accepts_from_ = clock_.Monotonic() + kPauseSeconds;
    if (!fd) return;
    if (sessions_.size() >= kMaxSessions) {
      if (std::has_single_bit(static_cast<uint64_t>(++num_turned_away_))) {
        LOG_WARNING << "readers of KV are turned away (" << num_turned_away_
                    << " so far): " << kMaxSessions << " are connected";
      }
      continue;
    }
    sessions_.push_back(std::make_unique<KvSession>(std::move(fd), options_.address.is_unix(),
                                                    &holdings_, clock_.Monotonic()));
  }
}

void KvServer::EndLeases() {
  for (RequestId& id : holdings_.released) on_released_(std::move(id));
  holdings_.released.clear();
  for (RequestId& id : holdings_.leases.Expire(clock_.Monotonic())) {
    WarnRarely("expired without being read to the end", &num_expired_);
    on_released_(std::move(id));
  }
}

void KvServer::WarnRarely(const char* what, int64_t* count) const {
  if (!std::has_single_bit(static_cast<uint64_t>(++*count))) return;
  LOG_WARNING << "KV that was computed for another engine " << what << " (" << *count
              << " requests so far)";
}

}  // namespace tandem
