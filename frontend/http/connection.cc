#include "frontend/http/connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/clock.h"
#include "frontend/http/write_batch.h"

namespace tandem {

namespace {

constexpr size_t kReadBytes = 64 << 10;      // per read; a thread's scratch space
constexpr size_t kKeptBytes = 256 << 10;     // of input not taken; beyond it reading pauses
constexpr size_t kDroppedBytes = 64 << 20;   // of discarded input; beyond it the peer is cut
constexpr size_t kMostKeptBytes = 16 << 10;  // of one write that joins a batch
constexpr size_t kIdleBytes = 256;           // room that a buffer may keep while nothing happens
constexpr size_t kMaxParts = 4;

double Now() { return SystemClock().Monotonic(); }

// A string that is assigned an empty one keeps its memory.
void FreeLarge(std::string* text, size_t max_capacity) {
  if (text->empty() && text->capacity() > max_capacity) std::string().swap(*text);
}

std::string PeerName(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "unknown";
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(in.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(ntohs(in6.sin6_port));
  }
  return "unix";
}

}  // namespace

Connection::Connection(Shard* shard, int fd, std::unique_ptr<Transport> transport,
                       std::function<void()> on_end)
    : socket_(shard, fd),
      transport_(std::move(transport)),
      on_end_(std::move(on_end)),
      peer_(PeerName(fd)) {}

Connection::~Connection() {
  if (is_kept_) WriteBatch::Remove(this);
}

void Connection::MarkClosed() {
  SendKept();
  if (std::exchange(closed_, true)) return;
  drained_.Set();
  EndInput();
}

void Connection::EndInput() {
  input_ended_ = true;
  input_.Set();
  on_end_();
}

void Connection::Close() {
  MarkClosed();
  socket_.Close();
}

// ---- Input ----

void Connection::WatchReads() {
  reading_ = true;
  socket_.NotifyReadable([this] { OnReadable(); });
}

void Connection::OnReadable() {
  thread_local std::array<char, kReadBytes> scratch;
  reading_ = false;
  while (!input_ended_) {
    if (!discarding_ && in_.size() >= kKeptBytes) return;  // resumed by MoreInput
    const ssize_t n = transport_->Read(scratch.data(), scratch.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      WatchReads();
      return;
    }
    if (n == 0) return EndInput();
    if (n < 0) return MarkClosed();
    if (discarding_) {
      discarded_ += static_cast<size_t>(n);
      if (discarded_ > kDroppedBytes) MarkClosed();
      continue;
    }
    StampArrival();
    in_.append(scratch.data(), static_cast<size_t>(n));
    input_.Set();
  }
}

void Connection::StampArrival() {
  if (std::exchange(arrived_, true)) return;
  arrival_ = {SystemClock().Unix(), Now()};
}

void Connection::BeginRequest() {
  arrived_ = false;
  if (!in_.empty()) StampArrival();
}

Awaitable<bool> Connection::MoreInput(double deadline) {
  if (input_ended_) co_return false;
  input_.Reset();
  const size_t before = in_.size();
  if (!reading_) OnReadable();
  if (in_.size() == before && !input_ended_) co_await input_.WaitUntil(deadline);
  co_return in_.size() > before && !closed_;
}

void Connection::ReleaseMemory() {
  FreeLarge(&in_, kIdleBytes);
  FreeLarge(&backlog_, kIdleBytes);
}

void Connection::Discard() {
  discarding_ = true;
  in_.clear();
  if (!reading_) OnReadable();
}

// ---- Output ----

void Connection::Write(Parts parts) {
  if (closed_) return;
  CHECK_LE(parts.size(), kMaxParts);
  const bool is_first = unsent() == 0;
  const bool joins_batch = is_first && CanJoinBatch(parts);
  ssize_t sent = is_first && !joins_batch ? WriteNow(parts) : 0;
  if (sent < 0) return MarkClosed();
  if (joins_batch) backlog_ = WriteBatch::TakeRoom();
  for (const std::string_view part : parts) {
    const size_t skip = std::min(static_cast<size_t>(sent), part.size());
    sent -= static_cast<ssize_t>(skip);
    backlog_.append(part.substr(skip));
  }
  if (joins_batch) {
    is_kept_ = true;
    WriteBatch::Add(this);
  } else if (unsent() > 0 && !writing_ && !is_kept_) {
    WatchWrites();
  }
}

ssize_t Connection::WriteNow(Parts parts) {
  std::array<iovec, kMaxParts> vectors;
  int num_vectors = 0;
  for (const std::string_view part : parts) {
    vectors[static_cast<size_t>(num_vectors++)] = {const_cast<char*>(part.data()), part.size()};
  }
  ssize_t n;
  do {
    n = transport_->Write(vectors.data(), num_vectors);
  } while (n < 0 && errno == EINTR);
  return n < 0 && errno == EAGAIN ? 0 : n;
}

// Copying much costs more than the call that it saves.
bool Connection::CanJoinBatch(Parts parts) const {
  if (!WriteBatch::is_open() || transport_->plain_fd() < 0) return false;
  size_t num_bytes = 0;
  for (const std::string_view part : parts) num_bytes += part.size();
  return num_bytes > 0 && num_bytes <= kMostKeptBytes;
}

SocketSend Connection::kept() const {
  return {.fd = transport_->plain_fd(), .bytes = std::string_view(backlog_).substr(backlog_sent_)};
}

void Connection::OnKeptSent(ssize_t result) {
  is_kept_ = false;
  if (result < 0 && result != -EAGAIN) return MarkClosed();
  backlog_sent_ += static_cast<size_t>(std::max<ssize_t>(result, 0));
  TrimBacklog();
  if (unsent() == 0) WriteBatch::GiveRoom(std::exchange(backlog_, {}));
}

void Connection::SendKept() {
  if (!std::exchange(is_kept_, false)) return;
  WriteBatch::Remove(this);
  OnWritable();
}

void Connection::WatchWrites() {
  writing_ = true;
  socket_.NotifyWritable([this] { OnWritable(); });
}

void Connection::OnWritable() {
  writing_ = false;
  while (!closed_ && unsent() > 0) {
    const iovec rest{backlog_.data() + backlog_sent_, unsent()};
    const ssize_t n = transport_->Write(&rest, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {
      MarkClosed();
      return;
    }
    backlog_sent_ += static_cast<size_t>(n);
  }
  TrimBacklog();
}

void Connection::TrimBacklog() {
  if (unsent() == 0) {
    backlog_sent_ = 0;
    backlog_.clear();
    FreeLarge(&backlog_, kReadBytes);  // the room that a lag took
    drained_.Set();
    return;
  }
  if (backlog_sent_ > backlog_.size() / 2) {
    backlog_.erase(0, backlog_sent_);
    backlog_sent_ = 0;
  }
  if (!closed_) WatchWrites();
}

Awaitable<void> Connection::Drain(double stall_s) {
  while (!closed_ && unsent() > 0) {
    const size_t before = unsent();
    drained_.Reset();
    const bool drained = co_await drained_.WaitUntil(Now() + stall_s);
    if (!drained && unsent() == before) MarkClosed();
  }
}

}  // namespace tandem
