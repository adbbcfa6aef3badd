#include "engine_core/kv_remote/session.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "common/log.h"

namespace tandem {
namespace {

constexpr size_t kMaxOrders = 16;
constexpr double kGreetingSeconds = 5;
constexpr double kStallSeconds = 10;
constexpr double kIdleSeconds = 300;        // a reader that lives closes long before
constexpr size_t kMaxIovecs = 1024;         // IOV_MAX
constexpr size_t kBytesPerTurn = 8 << 20;   // then others get theirs
constexpr size_t kMaxReplyBytes = 1 << 20;  // then nothing more is taken that wants a reply
constexpr size_t kReceiveBytes = 64 << 10;
constexpr char kNoLease[] =
    "no KV is held under this ticket: it was released, its time was over, or it never was";

void AttachFile(int file, std::span<char> control, msghdr* message) {
  message->msg_control = control.data();
  message->msg_controllen = control.size();
  cmsghdr* head = CMSG_FIRSTHDR(message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(file));
  std::memcpy(CMSG_DATA(head), &file, sizeof(file));
}

Status GoneError() { return UnavailableError("the reader is gone"); }

}  // namespace

int16_t KvSession::events() const {
  const bool sends = next_part_ < sending_.size() || !replies_.empty() || !orders_.empty();
  const bool receives = takes_frames() || is_refused_;
  return static_cast<int16_t>((sends ? POLLOUT : 0) | (receives ? POLLIN : 0));
}

bool KvSession::takes_frames() const {
  return orders_.size() < kMaxOrders && replies_.size() < kMaxReplyBytes && !is_refused_;
}

double KvSession::deadline() const {
  if (!is_greeted_) return last_progress_ + kGreetingSeconds;
  const bool waits_for_reader = (events() & POLLOUT) != 0 || !in_.empty() || is_refused_;
  return last_progress_ + (waits_for_reader ? kStallSeconds : kIdleSeconds);
}

Status KvSession::OnReady(int16_t events, double now) {
  if ((events & POLLIN) != 0) RETURN_IF_ERROR(Receive(now));
  if ((events & (POLLERR | POLLHUP | POLLNVAL)) != 0 && (events & POLLIN) == 0) return GoneError();
  RETURN_IF_ERROR(Send(now));
  return TakeFrames(now);  // for which there was no room before
}

Status KvSession::Receive(double now) {
  std::array<char, kReceiveBytes> buffer;
  const ssize_t size = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return OkStatus();
  if (size <= 0) return GoneError();
  if (is_refused_) return OkStatus();
  if (in_.empty()) last_progress_ = now;
  in_.append(buffer.data(), static_cast<size_t>(size));
  return TakeFrames(now);
}

Status KvSession::TakeFrames(double now) {
  std::string_view left = in_;
  while (left.size() >= kKvHeadBytes && takes_frames()) {
    ASSIGN_OR_RETURN(const KvFrameHead head, ReadKvHead(left.substr(0, kKvHeadBytes)));
    RETURN_IF_ERROR(CheckHead(head));
    if (left.size() < kKvHeadBytes + head.num_bytes) break;
    const std::string_view payload = left.substr(kKvHeadBytes, head.num_bytes);
    RETURN_IF_ERROR(Take(head, payload, now));
    last_progress_ = now;  // bytes alone are none: a frame may trickle
    left.remove_prefix(kKvHeadBytes + head.num_bytes);
  }
  in_.erase(0, in_.size() - left.size());
  return OkStatus();
}

Status KvSession::CheckHead(const KvFrameHead& head) const {
  const bool is_hello = head.kind == KvFrame::kHello;
  if (is_hello == is_greeted_) return DataLossError("a frame that is not expected");
  uint64_t limit = KvTicket::kBytes;
  if (is_hello) limit = kMaxKvHello;
  if (head.kind == KvFrame::kRead || head.kind == KvFrame::kFind) {
    limit = KvReadBytes(static_cast<uint64_t>(holdings_->parts.num_blocks()));
  }
  return head.num_bytes <= limit ? OkStatus() : DataLossError("a frame that is too long");
}

Status KvSession::Take(const KvFrameHead& head, std::string_view payload, double now) {
  switch (head.kind) {
    case KvFrame::kHello:
      return Greet(payload);
    case KvFrame::kRead:
    case KvFrame::kFind:
      return TakeOrder(head, payload, now);
    case KvFrame::kConfirm: {
      ASSIGN_OR_RETURN(const KvTicket ticket, ReadKvTicket(payload));
      return Confirm(head.number, ticket, now);
    }
    case KvFrame::kHold: {
      ASSIGN_OR_RETURN(const KvTicket ticket, ReadKvTicket(payload));
      if (holdings_->leases.Find(ticket) != nullptr) holdings_->leases.Renew(ticket.lease, now);
      return OkStatus();
    }
    case KvFrame::kRelease: {
      ASSIGN_OR_RETURN(const KvTicket ticket, ReadKvTicket(payload));
      std::optional<RequestId> id = holdings_->leases.Release(ticket);
      if (id) holdings_->released.push_back(*std::move(id));
      return OkStatus();
    }
    default:
      return DataLossError("a frame that only a holder sends");
  }
}

Status KvSession::Greet(std::string_view payload) {
  const StatusOr<KvShape> there = ReadKvHello(payload);
  const std::string why =
      there.ok() ? KvDifference(holdings_->shape, *there) : there.status().message();
  if (why.empty()) {
    const int64_t num_blocks = passes_memory_ ? holdings_->parts.num_blocks() : 0;
    replies_ += PackKvWelcome({.lease_ms = static_cast<uint32_t>(holdings_->lease_s * 1000),
                               .num_blocks = static_cast<uint64_t>(num_blocks)});
  } else {
    replies_ += PackKvRefusal(0, why);
    is_refused_ = true;
    passes_memory_ = false;
    if (std::has_single_bit(++holdings_->num_refused)) {
      LOG_WARNING << "a reader of KV is refused (" << holdings_->num_refused
                  << " so far) with: " << ReadKvRefusal(why);
    }
  }
  is_greeted_ = true;
  return OkStatus();
}

Status KvSession::Confirm(uint64_t number, const KvTicket& ticket, double now) {
  const bool holds = holdings_->leases.Find(ticket) != nullptr;
  if (holds) holdings_->leases.Renew(ticket.lease, now);
  replies_ += holds ? PackKvHeld(number) : PackKvRefusal(number, kNoLease);
  return OkStatus();
}

Status KvSession::TakeOrder(const KvFrameHead& head, std::string_view payload, double now) {
  const uint64_t number = head.number;
  ASSIGN_OR_RETURN(const KvReadOrder order, ReadKvRead(payload));
  const auto refuse = [&](const char* why) {
    replies_ += PackKvRefusal(number, why);
    return OkStatus();
  };
  const KvLease* lease = holdings_->leases.Find(order.ticket);
  if (lease == nullptr) return refuse(kNoLease);
  const uint64_t end = order.first + uint64_t{order.hashes.size()};
  if (end > lease->hashes.size()) return refuse("more blocks than were computed are asked for");
  const auto begin = lease->hashes.begin() + order.first;
  if (!std::equal(order.hashes.begin(), order.hashes.end(), begin)) {
    return refuse("other blocks were computed there: of another prompt, salt, image or adapter");
  }
  if (head.kind == KvFrame::kFind) {
    holdings_->leases.Renew(order.ticket.lease, now);
    const std::span<const BlockId> blocks = lease->blocks;
    replies_ += PackKvPlaces(number, blocks.subspan(order.first, order.hashes.size()));
    return OkStatus();
  }
  orders_.push_back({.number = number,
                     .ticket = order.ticket,
                     .next = order.first,
                     .end = static_cast<uint32_t>(end)});
  return OkStatus();
}

Status KvSession::Send(double now) {
  size_t num_sent = 0;
  while (num_sent < kBytesPerTurn) {
    // Its blocks may be another request's by now.
    if (sends_of_ && !holdings_->leases.Has(*sends_of_)) {
      return AbortedError("a lease ended while its blocks were sent");
    }
    if (next_part_ == sending_.size() && !PrepareNext(now)) {
      // With bytes left to be received, closing it could cost the reader the refusal: it closes.
      if (is_refused_) shutdown(socket_.get(), SHUT_WR);
      return OkStatus();
    }
    msghdr message = {};
    message.msg_iov = &sending_[next_part_];
    message.msg_iovlen = std::min(sending_.size() - next_part_, kMaxIovecs);
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
    if (passes_memory_) AttachFile(holdings_->memory.get(), control, &message);
    const ssize_t size = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return OkStatus();
    if (size < 0) return GoneError();
    passes_memory_ = false;
    DropBytes(static_cast<size_t>(size), &sending_, &next_part_);
    num_sent += static_cast<size_t>(size);
    last_progress_ = now;
  }
  return OkStatus();
}

// False: nothing is left to be sent.
bool KvSession::PrepareNext(double now) {
  sending_.clear();
  next_part_ = 0;
  sends_of_.reset();
  if (replies_.empty() && orders_.empty()) return false;
  head_ = std::exchange(replies_, {});
  if (orders_.empty()) {
    sending_.push_back({head_.data(), head_.size()});
    return true;
  }
  Order& order = orders_.front();
  const KvLease* lease = holdings_->leases.Find(order.ticket);
  if (lease == nullptr) {
    head_ += PackKvRefusal(order.number, kNoLease);
    sending_.push_back({head_.data(), head_.size()});
    orders_.pop_front();
    return true;
  }
  holdings_->leases.Renew(order.ticket.lease, now);
  const uint32_t ordinal = order.next++;
  const BlockId block = lease->blocks[ordinal];
  head_ += PackKvBlockHead(order.number,
                           {.ordinal = ordinal,
                            .hash = lease->hashes[ordinal],
                            .checksum = holdings_->parts.Checksum(block)},
                           holdings_->shape.block_bytes);
  sending_.push_back({head_.data(), head_.size()});
  holdings_->parts.AppendTo(&sending_, block);
  sends_of_ = order.ticket.lease;
  if (order.next == order.end) orders_.pop_front();
  return true;
}

}  // namespace tandem
