#include "proto_msgpack/wire_endpoint_socket.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "common/check.h"
#include "common/log.h"

namespace tandem::wire {

WakeUp::WakeUp() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  CHECK(fd_ >= 0) << std::strerror(errno);
}
WakeUp::~WakeUp() { close(fd_); }
void WakeUp::Signal() const {
  const uint64_t one = 1;
  // EAGAIN means that the counter is full, which wakes just as well.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
}
void WakeUp::Clear() const {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof(count));
}

void ReceivedMessage::Clear() {
  for (size_t i = 0; i < num_used_; ++i) zmq_msg_close(&parts_[i]);
  num_used_ = 0;
  frames_.clear();
}

bool ReceivedMessage::ReceiveFrom(void* socket) {
  Clear();
  bool more = true;
  while (more) {
    if (num_used_ == parts_.size()) parts_.emplace_back();
    zmq_msg_t* part = &parts_[num_used_];
    zmq_msg_init(part);
    // The parts of a message become readable together, so only the first can be missing.
    int size;
    do {
      size = zmq_msg_recv(part, socket, ZMQ_DONTWAIT);
    } while (size < 0 && zmq_errno() == EINTR);
    if (size < 0) {
      zmq_msg_close(part);
      return false;
    }
    ++num_used_;
    frames_.emplace_back(static_cast<const char*>(zmq_msg_data(part)), static_cast<size_t>(size));
    more = zmq_msg_more(part) != 0;
    if (!more) connection_ = zmq_msg_get(part, ZMQ_SRCFD);
  }
  return true;
}

size_t ReceivedMessage::total_bytes() const {
  size_t total = 0;
  for (const std::string_view frame : frames_) total += frame.size();
  return total;
}

Socket& Socket::operator=(Socket&& other) noexcept {
  Close();
  std::swap(socket_, other.socket_);
  std::swap(monitor_, other.monitor_);
  return *this;
}

void Socket::Open(const Context& context, int type) {
  Close();
  socket_ = zmq_socket(context.get(), type);
  CHECK(socket_ != nullptr) << zmq_strerror(zmq_errno());
  SetOption(ZMQ_SNDHWM, 0);
  SetOption(ZMQ_RCVHWM, 0);
}

void Socket::SetOption(int option, int value) {
  CHECK_EQ(zmq_setsockopt(socket_, option, &value, sizeof(value)), 0) << "option " << option;
}

void Socket::SetIdentity(std::string_view identity) {
  CHECK_EQ(zmq_setsockopt(socket_, ZMQ_ROUTING_ID, identity.data(), identity.size()), 0);
}

Status Socket::Bind(const std::string& address) {
  if (zmq_bind(socket_, address.c_str()) == 0) return OkStatus();
  return ErrnoError(zmq_errno(), "bind " + address);
}

Status Socket::Connect(const std::string& address) {
  if (zmq_connect(socket_, address.c_str()) == 0) return OkStatus();
  return ErrnoError(zmq_errno(), "connect " + address);
}

std::string Socket::bound_address() const {
  char address[256];
  size_t size = sizeof(address);
  CHECK_EQ(zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, address, &size), 0);
  return std::string(address, size - 1);
}

void Socket::Monitor(const Context& context) {
  static std::atomic<int> next{0};
  const std::string address = "inproc://monitor-" + std::to_string(next++);
  CHECK_EQ(zmq_socket_monitor(socket_, address.c_str(),
                              ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED),
           0);
  monitor_ = zmq_socket(context.get(), ZMQ_PAIR);
  CHECK(monitor_ != nullptr);
  CHECK_EQ(zmq_connect(monitor_, address.c_str()), 0);
}

bool Socket::NextEvent(ConnectionEvent* event) {
  if (monitor_ == nullptr) return false;
  ReceivedMessage message;
  if (!message.ReceiveFrom(monitor_)) return false;
  // Frame 0: 16 bits of event, 32 bits of value, as they lie in memory. Frame 1: the address.
  uint16_t kind;
  int32_t value;
  CHECK_GE(message.frames()[0].size(), sizeof(kind) + sizeof(value));
  std::memcpy(&kind, message.frames()[0].data(), sizeof(kind));
  std::memcpy(&value, message.frames()[0].data() + sizeof(kind), sizeof(value));
  event->opened = kind != ZMQ_EVENT_DISCONNECTED;
  event->connection = value;
  return true;
}

void Socket::Close(int linger_ms) {
  if (socket_ == nullptr) return;
  if (monitor_ != nullptr) {
    zmq_socket_monitor(socket_, nullptr, 0);
    SetOption(ZMQ_LINGER, linger_ms);
    const int none = 0;
    zmq_setsockopt(monitor_, ZMQ_LINGER, &none, sizeof(none));
    zmq_close(monitor_);
    monitor_ = nullptr;
  }
  SetOption(ZMQ_LINGER, linger_ms);
  zmq_close(socket_);
  socket_ = nullptr;
}

bool Socket::Send(std::span<const std::string_view> frames) {
  for (size_t i = 0; i < frames.size(); ++i) {
    const int flags = ZMQ_DONTWAIT | (i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
    int sent;
    do {
      sent = zmq_send(socket_, frames[i].data(), frames[i].size(), flags);
    } while (sent < 0 && zmq_errno() == EINTR);
    if (sent < 0) return false;  // only the first frame can be refused
  }
  return true;
}

void NoticeVanishedHosts(Socket* socket) {
  constexpr int kIdleSeconds = 5;
  constexpr int kProbes = 3;
  socket->SetOption(ZMQ_TCP_KEEPALIVE, 1);
  socket->SetOption(ZMQ_TCP_KEEPALIVE_IDLE, kIdleSeconds);
  socket->SetOption(ZMQ_TCP_KEEPALIVE_INTVL, kIdleSeconds);
  socket->SetOption(ZMQ_TCP_KEEPALIVE_CNT, kProbes);
  socket->SetOption(ZMQ_TCP_MAXRT, kIdleSeconds * kProbes * 1000);  // the same with data on its way
}

void WarnIfOpenToNetwork(std::string_view address) {
  if (!address.starts_with("tcp://")) return;
  for (const std::string_view loopback : {"tcp://127.", "tcp://localhost", "tcp://[::1]"}) {
    if (address.starts_with(loopback)) return;
  }
  LOG_WARNING << address << " is open to the network: prompts and answers travel unencrypted and "
              << "anyone who reaches the port may take part";
}

std::string EngineIdentity(int engine_index) {
  CHECK(engine_index >= 0 && engine_index <= 0xffff) << engine_index;
  return {static_cast<char>(engine_index & 0xff), static_cast<char>(engine_index >> 8)};
}

int EngineIndexOf(std::string_view identity) {
  if (identity.size() != 2) return -1;
  return static_cast<uint8_t>(identity[0]) | static_cast<uint8_t>(identity[1]) << 8;
}

void PollSet::Reset(const WakeUp& wake_up) {
  items_.assign(1, zmq_pollitem_t{nullptr, wake_up.fd(), ZMQ_POLLIN, 0});
}
void PollSet::Add(const Socket& socket) {
  if (!socket.is_open()) return;
  items_.push_back({socket.get(), 0, ZMQ_POLLIN, 0});
  if (socket.monitor() != nullptr) items_.push_back({socket.monitor(), 0, ZMQ_POLLIN, 0});
}
void PollSet::Wait() { zmq_poll(items_.data(), static_cast<int>(items_.size()), -1); }

}  // namespace tandem::wire
