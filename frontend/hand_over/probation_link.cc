#include "frontend/hand_over/probation_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/clock.h"
#include "common/log.h"
#include "common/packets.h"
#include "common/strings.h"
#include "common/unique_fd.h"
#include "frontend/hand_over/own_socket.h"

namespace tandem {
namespace {

// The first byte of a packet; that of kLeave is followed by the engine's index.
constexpr char kLeave = 'l', kLeft = 'L';

pid_t ProcessOf(const std::string& path) {
  return ParseNumber<pid_t>(std::string_view(path).substr(path.rfind('_') + 1)).value_or(0);
}

}  // namespace

ProbationLink::~ProbationLink() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

// ---- Those that ask here ----

Status ProbationLink::Listen(const std::string& path) {
  ASSIGN_OR_RETURN(UniqueFd fd, ListenAt(path));
  path_ = path;
  listener_ = std::make_unique<Socket>(shard_, fd.Release());
  WatchListener();
  return OkStatus();
}

void ProbationLink::WatchListener() {
  listener_->NotifyReadable([this] {
    Accept();
    WatchListener();
  });
}

void ProbationLink::Accept() {
  while (true) {
    UniqueFd fd(::accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    if (PeerOf(fd.get()) == 0) continue;
    peers_[++num_peers_].socket = std::make_unique<Socket>(shard_, fd.Release());
    WatchPeer(num_peers_);
  }
}

void ProbationLink::WatchPeer(int64_t peer_id) {
  peers_.at(peer_id).socket->NotifyReadable([this, peer_id] {
    if (ReadPeer(peer_id)) return WatchPeer(peer_id);
    Drop(peer_id);
  });
}

bool ProbationLink::ReadPeer(int64_t peer_id) {
  Peer& peer = peers_.at(peer_id);
  const StatusOr<Packet> packet = ReceivePacket(peer.socket->fd(), /*timeout_ms=*/0);
  if (packet.status().code() == StatusCode::kDeadlineExceeded) return true;
  if (!packet.ok() || packet->bytes.front() != kLeave || peer.turn) return false;
  const auto engine_index = ParseNumber<int>(std::string_view(packet->bytes).substr(1));
  if (!engine_index || *engine_index < 0 || *engine_index >= options_.num_engines) return false;
  peer.turn = calls_.begin(*engine_index, [this, peer_id] { OnLeft(peer_id); });
  return true;
}

void ProbationLink::OnLeft(int64_t peer_id) {
  (void)SendPacket(peers_.at(peer_id).socket->fd(), {&kLeft, 1});  // its end is noticed above
  shard_->At(SystemClock().Monotonic() + options_.patience_s, [this, peer_id] { Drop(peer_id); });
}

void ProbationLink::Drop(int64_t peer_id) {
  const auto peer = peers_.find(peer_id);
  if (peer == peers_.end()) return;
  const std::optional<int64_t> turn = peer->second.turn;
  peers_.erase(peer);
  if (turn) calls_.end(*turn);
}

// ---- Asking ----

void ProbationLink::Reserve(int asker, int engine_index,
                            std::function<void(Callback left)> begin_here, Callback reserved) {
  std::vector<std::string> paths = calls_.others();
  paths.push_back(path_);
  std::ranges::sort(paths, std::greater<>(), ProcessOf);
  reservations_[asker] = {.engine_index = engine_index,
                          .begin_here = std::move(begin_here),
                          .reserved = std::move(reserved),
                          .paths = std::move(paths)};
  AskNext(asker);
}

void ProbationLink::AskNext(int asker) {
  Reservation& reservation = reservations_.at(asker);
  while (!reservation.paths.empty()) {
    const std::string path = std::move(reservation.paths.back());
    reservation.paths.pop_back();
    if (path == path_) return reservation.begin_here([this, asker] { AskNext(asker); });
    if (AskAt(asker, path)) return;
  }
  reservation.reserved();
}

bool ProbationLink::AskAt(int asker, const std::string& path) {
  Reservation& reservation = reservations_.at(asker);
  StatusOr<UniqueFd> fd = ConnectAt(path);
  if (!fd.ok() || !SendPacket(fd->get(), kLeave + std::to_string(reservation.engine_index)).ok()) {
    return false;  // it has ended
  }
  const int64_t question = reservation.question = ++num_questions_;
  Socket& socket =
      *reservation.sockets.emplace_back(std::make_unique<Socket>(shard_, fd->Release()));
  socket.NotifyReadable([this, asker, question] { OnReply(asker, question); });
  shard_->At(SystemClock().Monotonic() + options_.patience_s, [this, asker, question, path] {
    const auto found = reservations_.find(asker);
    if (found == reservations_.end() || found->second.question != question) return;
    LOG_WARNING << "[reload] " << path << " does not reply: its requests may be on engine "
                << found->second.engine_index << " beside one that is to run alone";
    OnReply(asker, question);
  });
  return true;
}

// Or it has ended, or has taken too long.
void ProbationLink::OnReply(int asker, int64_t question) {
  const auto found = reservations_.find(asker);
  if (found == reservations_.end() || found->second.question != question) return;
  found->second.question = 0;
  AskNext(asker);
}

void ProbationLink::Release(int asker, bool has_ended) {
  const auto reservation = reservations_.find(asker);
  if (has_ended) {
    kept_.push_back(std::move(reservation->second.sockets));
    shard_->At(SystemClock().Monotonic() + options_.notice_s, [this] { kept_.pop_front(); });
  }
  reservations_.erase(reservation);
}

}  // namespace tandem
