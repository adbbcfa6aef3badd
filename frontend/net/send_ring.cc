#include "frontend/net/send_ring.h"

#include <liburing.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "common/check.h"
#include "common/log.h"

namespace tandem {
namespace {

constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;

ssize_t SendByCall(int fd, std::string_view bytes) {
  ssize_t n;
  do {
    n = ::send(fd, bytes.data(), bytes.size(), kFlags);
  } while (n < 0 && errno == EINTR);
  return n < 0 ? -errno : n;
}

}  // namespace

struct SendRing::State {
  io_uring ring;
};

SendRing::SendRing(Means means) : means_(means) {}

SendRing::~SendRing() {
  if (state_ != nullptr) io_uring_queue_exit(&state_->ring);
}

void SendRing::Send(std::span<SocketSend> sends) {
  CHECK_LE(sends.size(), kMaxSends);
  size_t num_sent = 0;
  if (sends.size() > 1 && uses_ring() && Open()) num_sent = SendThroughRing(sends);
  for (SocketSend& send : sends.subspan(num_sent)) send.result = SendByCall(send.fd, send.bytes);
}

bool SendRing::Open() {
  if (state_ != nullptr) return true;
  auto state = std::make_unique<State>();
  // Kernels before 6.1 do not know the flags, which save locks.
  int error = io_uring_queue_init(kMaxSends, &state->ring,
                                  IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
  if (error == -EINVAL) error = io_uring_queue_init(kMaxSends, &state->ring, 0);
  if (error < 0) {
    GiveUp(-error);
    return false;
  }
  state_ = std::move(state);
  return true;
}

size_t SendRing::SendThroughRing(std::span<SocketSend> sends) {
  io_uring* const ring = &state_->ring;
  for (size_t i = 0; i < sends.size(); ++i) {
    io_uring_sqe* const entry = io_uring_get_sqe(ring);
    CHECK(entry != nullptr);  // each Send empties the queue
    io_uring_prep_send(entry, sends[i].fd, sends[i].bytes.data(), sends[i].bytes.size(), kFlags);
    io_uring_sqe_set_data64(entry, i);
  }
  const int submitted = io_uring_submit_and_wait(ring, static_cast<unsigned>(sends.size()));
  const size_t num_sent = submitted < 0 ? 0 : static_cast<size_t>(submitted);
  for (size_t i = 0; i < num_sent; ++i) {
    io_uring_cqe* done = nullptr;
    int error;
    do {
      error = io_uring_wait_cqe(ring, &done);  // none of them waits for its socket
    } while (error == -EINTR);
    CHECK_EQ(error, 0) << "io_uring lost a send";
    sends[io_uring_cqe_get_data64(done)].result = done->res;
    io_uring_cqe_seen(ring, done);
  }
  // What it did not take stays in its queue and would be sent with the next ones.
  if (num_sent < sends.size()) GiveUp(submitted < 0 ? -submitted : EAGAIN);
  return num_sent;
}

void SendRing::GiveUp(int error) {
  LOG_DEBUG << "io_uring is not used: " << std::strerror(error);
  means_ = Means::kCalls;
  if (state_ != nullptr) io_uring_queue_exit(&state_->ring);
  state_.reset();
}

}  // namespace tandem
