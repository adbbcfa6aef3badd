#include "frontend/hand_over/hand_over.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "common/log.h"
#include "common/packets.h"
#include "common/strings.h"
#include "common/unix_address.h"
#include "frontend/hand_over/own_socket.h"

namespace tandem {
namespace {

// The first byte of a packet; the rest is its text.
constexpr char kTakeOver = 't', kEstate = 'e', kBound = 'b', kServing = 's', kRefused = 'r',
               kCounts = 'c';
// The second byte of an estate, whose text is the listening socket's path.
constexpr char kFromSystemd = 'd', kOwn = 'o';
constexpr int kReplyMs = 10'000;

Status Send(int fd, char kind, std::string_view text, std::span<const int> fds = {}) {
  return SendPacket(fd, (std::string(1, kind) + std::string(text)).substr(0, kMaxPacketBytes), fds);
}

Status SendCounts(int fd, std::string_view counts) {
  ASSIGN_OR_RETURN(const UniqueFd file, MakeMemoryFile("tandem-counts", counts));
  const std::array fds = {file.get()};
  return Send(fd, kCounts, "", fds);
}

StatusOr<std::string> CountsIn(const Packet& packet) {
  if (packet.bytes.front() != kCounts || packet.fds.size() != 1) {
    return InvalidArgumentError("no counts of a frontend");
  }
  return ReadMemoryFile(packet.fds[0].get());
}

// Packets that nobody has read would reset the connection, and the reply would be lost.
void SendRefusal(int fd, std::string_view why) {
  (void)Send(fd, kRefused, why);
  (void)::shutdown(fd, SHUT_RD);
  while (ReceivePacket(fd, /*timeout_ms=*/0).ok()) {
  }
}

StatusOr<Estate> EstateIn(Packet packet) {
  const std::string& bytes = packet.bytes;
  if (bytes.front() == kRefused) return FailedPreconditionError(bytes.substr(1));
  const size_t num_fds = packet.fds.size();
  if (bytes.size() < 2 || bytes.front() != kEstate || num_fds < 2 || num_fds > 3) {
    return InternalError("the frontend that serves replies with something else than its sockets");
  }
  Estate estate;
  estate.folder_lock = std::move(packet.fds[0]);
  estate.listener.fd = std::move(packet.fds[1]);
  estate.listener.is_from_systemd = bytes[1] == kFromSystemd;
  estate.listener.path = bytes.substr(2);
  if (num_fds == 3) {
    ASSIGN_OR_RETURN(estate.adapters, ReadMemoryFile(packet.fds[2].get()));
  }
  return estate;
}

}  // namespace

// ---- The one that serves ----

HandOverOffer::HandOverOffer(Shard* shard, Calls calls) : shard_(shard), calls_(std::move(calls)) {}

Status HandOverOffer::Listen(const std::string& path) {
  ASSIGN_OR_RETURN(UniqueFd fd, ListenAt(path));
  path_ = path;
  listener_ = std::make_unique<Socket>(shard_, fd.Release());
  WatchListener();
  return OkStatus();
}

void HandOverOffer::Close(std::string_view why) {
  if (!path_.empty()) ::unlink(std::exchange(path_, "").c_str());
  listener_.reset();
  if (successor_ != nullptr) Refuse(why);
}

void HandOverOffer::WatchListener() {
  listener_->NotifyReadable([this] {
    Accept();
    if (listener_ != nullptr) WatchListener();
  });
}

void HandOverOffer::Accept() {
  while (true) {
    UniqueFd fd(::accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    const pid_t peer = PeerOf(fd.get());
    if (peer == 0) continue;
    if (successor_ != nullptr) {
      SendRefusal(fd.get(), "another frontend is about to take over");
      continue;
    }
    successor_ = std::make_unique<Socket>(shard_, fd.Release());
    successor_pid_ = peer;
    is_introduced_ = false;
    WatchSuccessor();
  }
}

void HandOverOffer::WatchSuccessor() {
  successor_->NotifyReadable([this] {
    OnReadable();
    if (successor_ != nullptr) WatchSuccessor();
  });
}

void HandOverOffer::OnReadable() {
  while (successor_ != nullptr) {
    const StatusOr<Packet> packet = ReceivePacket(successor_->fd(), /*timeout_ms=*/0);
    if (packet.status().code() == StatusCode::kDeadlineExceeded) return;
    if (packet.ok()) {
      Handle(packet->bytes);
      continue;
    }
    successor_.reset();
    LOG_WARNING << "[reload] process " << successor_pid_
                << " has ended before it took over; this one serves on";
    if (is_introduced_) calls_.take_back();
  }
}

void HandOverOffer::Handle(std::string_view packet) {
  const std::string_view text = packet.substr(1);
  switch (packet.front()) {
    case kTakeOver:
      return HandleTakeOver(text);
    case kBound:
      LOG_INFO << "[reload] process " << successor_pid_ << " meets the engines";
      is_introduced_ = true;
      return calls_.introduce(std::string(text));
    case kServing: {
      const std::unique_ptr<Socket> successor = std::move(successor_);
      (void)SendCounts(successor->fd(), calls_.retire(successor_pid_));  // it may be gone already
      return;
    }
    default:
      Refuse("a message that this version does not know");
  }
}

void HandOverOffer::HandleTakeOver(std::string_view num_engines) {
  const StatusOr<Estate> estate = calls_.share(ParseNumber<int>(num_engines).value_or(0));
  if (!estate.ok()) return Refuse(estate.status().message());
  std::vector<int> fds = {estate->folder_lock.get(), estate->listener.fd.get()};
  UniqueFd adapters;
  if (!estate->adapters.empty()) {
    StatusOr<UniqueFd> file = MakeMemoryFile("tandem-adapters", estate->adapters);
    if (!file.ok()) return Refuse(file.status().message());
    adapters = *std::move(file);
    fds.push_back(adapters.get());
  }
  const char origin = estate->listener.is_from_systemd ? kFromSystemd : kOwn;
  const Status sent =
      Send(successor_->fd(), kEstate, std::string(1, origin) + estate->listener.path, fds);
  if (!sent.ok()) return Refuse(sent.message());
  LOG_INFO << "[reload] process " << successor_pid_ << " is about to take over";
}

void HandOverOffer::Refuse(std::string_view why) {
  LOG_ERROR << "[reload] process " << successor_pid_ << " may not take over: " << why;
  SendRefusal(successor_->fd(), why);
  successor_.reset();
  if (is_introduced_) calls_.take_back();
}

// ---- The next one ----

StatusOr<std::optional<HandOverClaim>> HandOverClaim::Make(const std::string& path,
                                                           int num_engines) {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  HandOverClaim claim;
  claim.connection_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const int fd = claim.connection_.get();
  if (fd < 0) return ErrnoError(errno, "socket");
  if (::connect(fd, AsSockaddr(address), sizeof address) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return std::optional<HandOverClaim>();
    return ErrnoError(errno, "connect " + path);
  }
  // Refused at once, the socket takes nothing more, and has a reply.
  (void)Send(fd, kTakeOver, std::to_string(num_engines));
  StatusOr<Packet> reply = ReceivePacket(fd, kReplyMs);
  if (!reply.ok()) return reply.status().WithContext("the frontend that serves does not reply");
  ASSIGN_OR_RETURN(claim.estate_, EstateIn(*std::move(reply)));
  return std::optional<HandOverClaim>(std::move(claim));
}

Status HandOverClaim::SendBound(std::string_view own_address) const {
  return Send(fd(), kBound, own_address);
}

Status HandOverClaim::SendServing() const { return Send(fd(), kServing, ""); }

void HandOverClaim::WatchEnd(Shard* shard,
                             std::function<void(const StatusOr<std::string>&)> on_end) {
  watched_ = std::make_unique<Socket>(shard, connection_.Release());
  watched_->NotifyReadable([this, on_end = std::move(on_end)] {
    const StatusOr<Packet> packet = ReceivePacket(fd(), /*timeout_ms=*/0);
    if (!packet.ok()) return on_end(std::string());
    if (packet->bytes.front() != kRefused) return on_end(CountsIn(*packet));
    on_end(FailedPreconditionError(packet->bytes.substr(1)));
  });
}

// ---- Counts of those that have retired ----

LateCounts::LateCounts(Shard* shard, std::function<void(const std::string&)> on_counts)
    : shard_(shard), on_counts_(std::move(on_counts)) {}

LateCounts::~LateCounts() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

Status LateCounts::Listen(const std::string& path) {
  ASSIGN_OR_RETURN(UniqueFd fd, BindAt(path, SOCK_DGRAM));
  path_ = path;
  socket_ = std::make_unique<Socket>(shard_, fd.Release());
  Watch();
  return OkStatus();
}

void LateCounts::Watch() {
  socket_->NotifyReadable([this] {
    Take();
    Watch();
  });
}

void LateCounts::Take() {
  while (true) {
    const StatusOr<Packet> packet = ReceivePacket(socket_->fd(), /*timeout_ms=*/0);
    if (!packet.ok()) return;  // mostly: nothing more is there
    const StatusOr<std::string> counts = CountsIn(*packet);
    if (counts.ok()) {
      on_counts_(*counts);
    } else {
      LOG_WARNING << "[reload] " << counts.status().message();
    }
  }
}

Status LateCounts::Send(const std::string& path, std::string_view counts) {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return ErrnoError(errno, "socket");
  if (::connect(fd.get(), AsSockaddr(address), sizeof address) != 0) {
    return ErrnoError(errno, "connect " + path);
  }
  return SendCounts(fd.get(), counts);
}

}  // namespace tandem
