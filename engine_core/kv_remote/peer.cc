#include "engine_core/kv_remote/peer.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

constexpr size_t kMaxSent = 4;             // orders; the holder has something to do meanwhile
constexpr size_t kMaxIovecs = 1024;        // IOV_MAX
constexpr size_t kBytesPerTurn = 8 << 20;  // then other holders get theirs
constexpr double kMinBytesPerSecond = 1 << 20;
constexpr double kFirstHoldSeconds = 5;  // while the holder's lease is not known
constexpr double kHoldsPerLease = 6;
constexpr double kMinLeaseSeconds = 0.06;     // a hold each 10 ms
constexpr size_t kMaxUnsentBytes = 64 << 20;  // of a holder that receives nothing
constexpr double kNever = std::numeric_limits<double>::infinity();

Status LostError() { return UnavailableError("the connection was lost"); }
Status StrangeError(const char* what) {
  return DataLossError(std::string("the holder sent ") + what);
}

}  // namespace

void KvPeer::Hold(const RequestId& id, const KvTicket& ticket, double now) {
  held_[id] = ticket;
  last_use_ = now;
  if (!socket_) return Connect(now);  // which holds all
  out_ += PackKvTicket(KvFrame::kHold, ticket);
}

void KvPeer::Read(KvReadJob job, double now) {
  held_[job.id] = job.ticket;
  waiting_.push_back(std::move(job));
  last_use_ = now;
  if (!socket_) return Connect(now);
  SendOrders(now);
}

// Without a connection the lease ends by itself.
void KvPeer::Release(const RequestId& id, double now) {
  const auto held = held_.find(id);
  if (held == held_.end()) return;
  const KvTicket ticket = held->second;
  held_.erase(held);
  last_use_ = now;
  // The choices of a prompt share a lease; the last one ends it.
  const bool is_shared = std::ranges::any_of(held_, [&](const auto& other) {
    return other.second.lease == ticket.lease && other.second.secret == ticket.secret;
  });
  if (socket_ && !is_shared) out_ += PackKvTicket(KvFrame::kRelease, ticket);
}

void KvPeer::Connect(double now) {
  connected_at_ = now;
  is_connected_ = false;
  lease_s_ = 0;
  num_cache_blocks_ = 0;
  cache_ = MappedCache();
  file_ = UniqueFd();
  part_ = Part::kHead;
  receiving_.clear();
  next_part_ = 0;
  StatusOr<UniqueFd> socket = ConnectTo(address_);
  if (!socket.ok()) return Lose(socket.status(), now);
  socket_ = *std::move(socket);
  out_ = PackKvHello(reading_->shape);
  SendHolds(now);
  SendOrders(now);
}

void KvPeer::SendHolds(double now) {
  for (const auto& [id, ticket] : held_) out_ += PackKvTicket(KvFrame::kHold, ticket);
  next_hold_ = now + (has_welcome() ? lease_s_ / kHoldsPerLease : kFirstHoldSeconds);
}

// On one host they wait for the welcome, which may bring the cache itself.
void KvPeer::SendOrders(double now) {
  if (address_.is_unix() && !has_welcome()) return;
  const KvFrame kind = cache_.memory() == nullptr ? KvFrame::kRead : KvFrame::kFind;
  while (!waiting_.empty() && sent_.size() < kMaxSent) {
    if (sent_.empty()) order_begin_ = last_block_ = now;
    Order& order = sent_.emplace_back(Order{std::move(waiting_.front()), ++num_orders_});
    waiting_.pop_front();
    const KvReadJob& job = order.job;
    out_ += PackKvRead(order.number, {job.ticket, job.first, job.hashes}, kind);
  }
}

int16_t KvPeer::events() const {
  const bool sends = !is_connected_ || !out_.empty();
  return static_cast<int16_t>(POLLIN | (sends ? POLLOUT : 0));
}

void KvPeer::OnReady(int16_t events, double now) {
  const auto serve = [&]() -> Status {
    if (!is_connected_) {
      RETURN_IF_ERROR(CheckConnected(socket_.get(), address_));
      is_connected_ = true;
    }
    RETURN_IF_ERROR(Flush());
    if ((events & POLLIN) != 0) return Receive(now);
    return (events & (POLLERR | POLLHUP | POLLNVAL)) != 0 ? LostError() : OkStatus();
  };
  if (const Status status = serve(); !status.ok()) Lose(status, now);
}

Status KvPeer::Flush() {
  while (!out_.empty()) {
    const ssize_t size = send(socket_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return OkStatus();
    // Its last words, a refusal perhaps, are still to be received.
    if (size < 0) out_.clear();
    if (size > 0) out_.erase(0, static_cast<size_t>(size));
  }
  return OkStatus();
}

Status KvPeer::Receive(double now) {
  size_t num_received = 0;
  while (num_received < kBytesPerTurn) {
    if (next_part_ == receiving_.size()) {
      receiving_.assign(1, {bytes_.data(), kKvHeadBytes});
      next_part_ = 0;
      part_ = Part::kHead;
    }
    const ssize_t size = ReceiveSome(/*wants_file=*/address_.is_unix() && !has_welcome());
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return OkStatus();
    if (size <= 0) return LostError();
    num_received += static_cast<size_t>(size);
    DropBytes(static_cast<size_t>(size), &receiving_, &next_part_);
    if (next_part_ < receiving_.size()) continue;
    RETURN_IF_ERROR(part_ == Part::kHead      ? TakeHead(now)
                    : part_ == Part::kPayload ? TakePayload(now)
                                              : EndBlock(now));
  }
  return OkStatus();
}

ssize_t KvPeer::ReceiveSome(bool wants_file) {
  msghdr message = {};
  message.msg_iov = &receiving_[next_part_];
  message.msg_iovlen = std::min(receiving_.size() - next_part_, kMaxIovecs);
  // The kernel closes files for which there is no room.
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  message.msg_control = wants_file ? control.data() : nullptr;
  message.msg_controllen = wants_file ? control.size() : 0;
  const ssize_t size = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* head = size > 0 && wants_file ? CMSG_FIRSTHDR(&message) : nullptr;
  if (head == nullptr || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
    return size;
  }
  // Each is owned, the last one is kept: padding has room for a second one.
  const size_t num_files = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (size_t i = 0; i < num_files; ++i) {
    int file = -1;
    std::memcpy(&file, CMSG_DATA(head) + i * sizeof(int), sizeof(file));
    file_ = UniqueFd(file);
  }
  return size;
}

Status KvPeer::TakeHead(double now) {
  ASSIGN_OR_RETURN(head_, ReadKvHead({bytes_.data(), kKvHeadBytes}));
  size_t num_bytes = head_.num_bytes;
  switch (head_.kind) {
    case KvFrame::kWelcome:
    case KvFrame::kRefusal:
      if (num_bytes == 0 || num_bytes > kMaxKvReason)
        return StrangeError("a frame of another length");
      break;
    case KvFrame::kHeld:
      if (num_bytes != 0) return StrangeError("a frame of another length");
      return TakeHeld(now);
    case KvFrame::kPlaces: {
      const auto order = std::ranges::find(sent_, head_.number, &Order::number);
      const bool fits = order != sent_.end() && cache_.memory() != nullptr &&
                        order->places.empty() &&
                        num_bytes == order->job.blocks.size() * sizeof(uint32_t);
      if (!fits) return StrangeError("places that were not asked for");
      places_.resize(num_bytes);
      receiving_.assign(1, {places_.data(), num_bytes});
      next_part_ = 0;
      part_ = Part::kPayload;
      return OkStatus();
    }
    case KvFrame::kBlock:
      if (num_bytes != kKvBlockHeadBytes + reading_->shape.block_bytes || !has_welcome()) {
        return StrangeError("a block of another size");
      }
      num_bytes = kKvBlockHeadBytes;
      break;
    default:
      return StrangeError("a frame that only a reader sends");
  }
  receiving_.assign(1, {bytes_.data(), num_bytes});
  next_part_ = 0;
  part_ = Part::kPayload;
  return OkStatus();
}

Status KvPeer::TakePayload(double now) {
  if (head_.kind == KvFrame::kPlaces) return TakePlaces();
  if (head_.kind == KvFrame::kBlock) return BeginBlock();
  const std::string payload(bytes_.data(), head_.num_bytes);
  if (head_.kind == KvFrame::kRefusal) return TakeRefusal(ReadKvRefusal(payload), now);
  return TakeWelcome(payload, now);
}

Status KvPeer::TakeWelcome(std::string_view payload, double now) {
  ASSIGN_OR_RETURN(const KvWelcome welcome, ReadKvWelcome(payload));
  if (welcome.lease_ms == 0 || has_welcome()) return StrangeError("a second welcome");
  constexpr uint64_t kMostBlocks = INT32_MAX;
  if (welcome.num_blocks > kMostBlocks) return StrangeError("a cache of too many blocks");
  const UniqueFd file = std::move(file_);
  if (file && welcome.num_blocks > 0) {
    const uint64_t bytes = welcome.num_blocks * reading_->shape.block_bytes;
    ASSIGN_OR_RETURN(cache_, MappedCache::Open(file, bytes));
    num_cache_blocks_ = static_cast<int64_t>(welcome.num_blocks);
  }
  lease_s_ = std::max(welcome.lease_ms / 1000.0, kMinLeaseSeconds);
  next_hold_ = std::min(next_hold_, now + lease_s_ / kHoldsPerLease);
  SendOrders(now);
  return OkStatus();
}

Status KvPeer::TakePlaces() {
  const auto order = std::ranges::find(sent_, head_.number, &Order::number);
  CHECK(order != sent_.end());  // as TakeHead has seen
  ASSIGN_OR_RETURN(order->places, ReadKvPlaces(places_));
  for (const uint32_t place : order->places) {
    if (place >= static_cast<uint64_t>(num_cache_blocks_)) {
      return StrangeError("a place outside of its cache");
    }
  }
  return OkStatus();
}

Status KvPeer::TakeHeld(double now) {
  const auto order = std::ranges::find(sent_, head_.number, &Order::number);
  if (order == sent_.end() || order->num_copied < order->job.blocks.size()) {
    return StrangeError("an answer to what was not asked");
  }
  order->num_read = order->num_copied;
  EndSent(order, OkStatus(), now);
  return OkStatus();
}

KvPeer::Order* KvPeer::NextToCopy() {
  const auto found = std::ranges::find_if(
      sent_, [](const Order& one) { return one.num_copied < one.places.size(); });
  return found == sent_.end() ? nullptr : &*found;
}

void KvPeer::CopySome(double now) {
  Order* const order = NextToCopy();
  if (order == nullptr) return;
  const auto block_bytes = static_cast<size_t>(reading_->shape.block_bytes);
  const size_t turn = std::max<size_t>(kBytesPerTurn / block_bytes, 1);
  const size_t end = std::min(order->places.size(), order->num_copied + turn);
  for (; order->num_copied < end; ++order->num_copied) {
    reading_->parts.CopyFrom(cache_.memory(), num_cache_blocks_, order->places[order->num_copied],
                             order->job.blocks[order->num_copied]);
  }
  last_block_ = now;
  if (order->num_copied < order->places.size()) return;
  out_ += PackKvTicket(KvFrame::kConfirm, order->job.ticket, order->number);
}

Status KvPeer::TakeRefusal(const std::string& reason, double now) {
  if (head_.number == 0) return FailedPreconditionError(reason);
  const auto order = std::ranges::find(sent_, head_.number, &Order::number);
  if (order == sent_.end()) return StrangeError("a refusal of what was not ordered");
  EndSent(order, FailedPreconditionError(reason), now);
  return OkStatus();
}

Status KvPeer::BeginBlock() {
  ASSIGN_OR_RETURN(const KvBlockHead block, ReadKvBlockHead({bytes_.data(), kKvBlockHeadBytes}));
  const auto order = std::ranges::find(sent_, head_.number, &Order::number);
  if (order == sent_.end()) return StrangeError("a block that was not ordered");
  const KvReadJob& job = order->job;
  const bool is_next = block.ordinal == job.first + order->num_read;
  if (!is_next || block.hash != job.hashes[order->num_read]) {
    return StrangeError("another block than was ordered");
  }
  receiving_.clear();
  reading_->parts.AppendTo(&receiving_, job.blocks[order->num_read]);
  next_part_ = 0;
  part_ = Part::kBlock;
  return OkStatus();
}

Status KvPeer::EndBlock(double now) {
  const auto order = std::ranges::find(sent_, head_.number, &Order::number);
  CHECK(order != sent_.end());
  // A block is not received to where its head is.
  ASSIGN_OR_RETURN(const KvBlockHead sent, ReadKvBlockHead({bytes_.data(), kKvBlockHeadBytes}));
  if (reading_->parts.Checksum(order->job.blocks[order->num_read]) != sent.checksum) {
    return StrangeError("a block that was damaged on the way");
  }
  last_block_ = now;
  if (++order->num_read < order->job.blocks.size()) return OkStatus();
  EndSent(order, OkStatus(), now);
  return OkStatus();
}

void KvPeer::EndSent(const std::deque<Order>::iterator& order, const Status& status, double now) {
  if (order == sent_.begin()) order_begin_ = last_block_ = now;
  Order ended = std::move(*order);
  sent_.erase(order);
  End(std::move(ended), status, now);
  SendOrders(now);
}

void KvPeer::End(Order order, const Status& status, double now) {
  const auto first_failed = order.job.blocks.begin() + static_cast<ptrdiff_t>(order.num_read);
  Release(order.job.id, now);
  // The lease's end is on its way before anybody learns that it has been read.
  if (socket_ && is_connected_) (void)Flush();
  reading_->on_end({.id = std::move(order.job.id),
                    .status = status.ok() ? status : status.WithContext(address_.ToString()),
                    .failed_blocks = {first_failed, order.job.blocks.end()},
                    .has_any = order.num_read > 0});
}

// A holder that has welcomed may be there again at once: what had not been ordered yet is. Each
// time at least one order ends, so this does not go on for ever.
void KvPeer::Lose(const Status& status, double now) {
  const bool tries_again = has_welcome() && !sent_.empty();
  socket_ = UniqueFd();
  out_.clear();
  next_hold_ = now + kFirstHoldSeconds;
  std::deque<Order> ended = std::exchange(sent_, {});
  if (!tries_again) {
    for (KvReadJob& job : std::exchange(waiting_, {})) ended.push_back({std::move(job)});
  }
  for (Order& order : ended) End(std::move(order), status, now);
  if (!waiting_.empty()) Connect(now);
}

double KvPeer::OrderDeadline() const {
  const double bytes = static_cast<double>(reading_->shape.block_bytes) *
                       static_cast<double>(sent_.front().job.blocks.size());
  const double stall_s = reading_->options.stall_s;
  return std::min(last_block_ + stall_s, order_begin_ + stall_s + bytes / kMinBytesPerSecond);
}

double KvPeer::deadline() const {
  if (socket_ && NextToCopy() != nullptr) return 0;
  double next = held_.empty() ? kNever : next_hold_;
  if (socket_ && !has_welcome()) next = std::min(next, connected_at_ + reading_->options.connect_s);
  if (socket_ && !sent_.empty()) next = std::min(next, OrderDeadline());
  if (is_idle()) next = std::min(next, last_use_ + reading_->options.idle_s);
  return next;
}

void KvPeer::OnTime(double now) {
  const auto late = [](const char* what) { return Status(StatusCode::kDeadlineExceeded, what); };
  if (socket_ && !has_welcome() && now >= connected_at_ + reading_->options.connect_s) {
    return Lose(late("the holder does not respond"), now);
  }
  if (socket_ && !sent_.empty() && now >= OrderDeadline()) {
    return Lose(late("the holder's blocks do not come"), now);
  }
  if (socket_) CopySome(now);
  if (out_.size() > kMaxUnsentBytes) return Lose(late("the holder receives nothing"), now);
  if (held_.empty() || now < next_hold_) return;
  if (!socket_) return Connect(now);
  SendHolds(now);
}

bool KvPeer::is_over(double now) const {
  return is_idle() && now >= last_use_ + reading_->options.idle_s;
}

}  // namespace tandem
