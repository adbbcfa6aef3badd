#include "engine_core/kv_remote/reader.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/log.h"

namespace tandem {
namespace {

constexpr size_t kMaxPeers = 128;
constexpr double kMaxSleepSeconds = 60;

}  // namespace

StatusOr<std::unique_ptr<KvReader>> KvReader::Start(BlockParts parts, KvShape shape,
                                                    KvReaderOptions options,
                                                    std::function<void(KvReadEnd)> on_end) {
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return ErrnoError(errno, "eventfd");
  return std::unique_ptr<KvReader>(new KvReader(
      std::move(wake), {std::move(parts), std::move(shape), options, std::move(on_end)}));
}

KvReader::KvReader(UniqueFd wake, KvReading reading)
    : wake_(std::move(wake)),
      reading_(std::move(reading)),
      commands_([fd = wake_.get()] { eventfd_write(fd, 1); }),
      thread_([this] { Run(); }) {}

KvReader::~KvReader() {
  commands_.Close();
  thread_.join();
}

void KvReader::Hold(const KvAddress& holder, const RequestId& id, const KvTicket& ticket) {
  commands_.Push({Act::kHold, holder, {.id = id, .ticket = ticket}});
}

void KvReader::Read(const KvAddress& holder, KvReadJob job) {
  commands_.Push({Act::kRead, holder, std::move(job)});
}

void KvReader::Release(const KvAddress& holder, const RequestId& id) {
  commands_.Push({Act::kRelease, holder, {.id = id}});
}

void KvReader::Run() {
  SetThreadName("kv-remote-read");
  while (!commands_.closed()) {
    Poll();
    Serve();
    TakeCommands();
  }
}

void KvReader::Poll() {
  polled_.assign(1, {wake_.get(), POLLIN, 0});
  polled_peers_.clear();
  const double now = clock_.Monotonic();
  double next = now + kMaxSleepSeconds;
  for (const auto& [name, peer] : peers_) {
    next = std::min(next, peer->deadline());
    if (peer->fd() < 0) continue;
    polled_.push_back({peer->fd(), peer->events(), 0});
    polled_peers_.push_back(peer.get());
  }
  const int sleep_ms = next <= now ? 0 : static_cast<int>((next - now) * 1000) + 1;
  if (poll(polled_.data(), polled_.size(), sleep_ms) < 0) {
    for (pollfd& one : polled_) one.revents = 0;  // EINTR
  }
}

void KvReader::Serve() {
  const double now = clock_.Monotonic();
  for (size_t i = 0; i < polled_peers_.size(); ++i) {
    const int16_t ready = polled_[i + 1].revents;
    if (ready != 0) polled_peers_[i]->OnReady(ready, now);
  }
  for (const auto& [name, peer] : peers_) {
    if (now >= peer->deadline()) peer->OnTime(now);
  }
  std::erase_if(peers_, [&](const auto& one) { return one.second->is_over(now); });
}

void KvReader::TakeCommands() {
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
  commands_.Drain(&taken_);
  const double now = clock_.Monotonic();
  for (Command& command : taken_) {
    const std::string name = command.holder.ToString();
    auto found = peers_.find(name);
    if (found == peers_.end() && command.act == Act::kRelease) continue;
    if (found == peers_.end() && peers_.size() >= kMaxPeers) {
      if (command.act != Act::kRead) continue;
      reading_.on_end({.id = std::move(command.job.id),
                       .status = ResourceExhaustedError("too many engines hold KV for this one"),
                       .failed_blocks = std::move(command.job.blocks)});
      continue;
    }
    if (found == peers_.end()) {
      found = peers_.emplace(name, std::make_unique<KvPeer>(command.holder, &reading_, now)).first;
    }
    KvPeer& peer = *found->second;
    if (command.act == Act::kHold) peer.Hold(command.job.id, command.job.ticket, now);
    if (command.act == Act::kRead) peer.Read(std::move(command.job), now);
    if (command.act == Act::kRelease) peer.Release(command.job.id, now);
  }
}

}  // namespace tandem
