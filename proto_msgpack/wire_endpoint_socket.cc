#include "proto_msgpack/wire_endpoint_socket.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "common/check.h"
#include "common/log.h"
#include "proto_msgpack/handshake_address.h"

namespace tandem::wire {
namespace {

template <class Function>
void MustSucceed(Function&& function) {
  try {
    function();
  } catch (const zmq::error_t& error) {
    CHECK(false) << error.what();
  }
}

// Again when a signal came in between; false for every other refusal.
template <class Function>
bool Uninterrupted(Function&& function) {
  while (true) {
    try {
      return function();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) return false;
    }
  }
}

}  // namespace

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

size_t ReceivedMessage::total_bytes() const {
  size_t total = 0;
  for (const std::string_view frame : frames_) total += frame.size();
  return total;
}

int ReceivedMessage::connection() {
  if (frames_.empty()) return -1;
  try {
    return parts_[frames_.size() - 1].get(ZMQ_SRCFD);
  } catch (const zmq::error_t&) {
    return -1;
  }
}

void ReceivedMessage::Clear() {
  for (size_t i = 0; i < frames_.size(); ++i) parts_[i].rebuild();
  frames_.clear();
}

bool ReceivedMessage::ReceiveFrom(zmq::socket_t& socket) {
  Clear();
  while (true) {
    if (frames_.size() == parts_.size()) parts_.emplace_back();
    zmq::message_t& part = parts_[frames_.size()];
    // The parts of a message become readable together, so only the first can be missing.
    const bool received =
        Uninterrupted([&] { return socket.recv(part, zmq::recv_flags::dontwait).has_value(); });
    if (!received) return false;
    frames_.push_back(part.to_string_view());
    if (!part.more()) return true;
  }
}

zmq::context_t MakeContext() {
  zmq::context_t context;
  context.set(zmq::ctxopt::max_sockets, 4096);
  return context;
}

Socket& Socket::operator=(Socket&& other) noexcept {
  Close();
  socket_.swap(other.socket_);
  monitor_.swap(other.monitor_);
  std::swap(may_have_input_, other.may_have_input_);
  std::swap(may_have_events_, other.may_have_events_);
  return *this;
}

void Socket::Open(zmq::context_t& context, zmq::socket_type type) {
  Close();
  MustSucceed([&] {
    socket_ = zmq::socket_t(context, type);
    socket_.set(zmq::sockopt::sndhwm, 0);
    socket_.set(zmq::sockopt::rcvhwm, 0);
  });
}

void Socket::SetIdentity(std::string_view identity) {
  MustSucceed([&] { socket_.set(zmq::sockopt::routing_id, identity); });
}

void Socket::SetSendLimit(int64_t num_messages) {
  MustSucceed([&] { socket_.set(zmq::sockopt::sndhwm, static_cast<int>(num_messages)); });
}

void Socket::SetReconnectInterval(int first_ms, int max_ms) {
  MustSucceed([&] {
    socket_.set(zmq::sockopt::reconnect_ivl, first_ms);
    socket_.set(zmq::sockopt::reconnect_ivl_max, max_ms);
  });
}

void Socket::FollowPeers() {
  MustSucceed([&] {
    socket_.set(zmq::sockopt::router_mandatory, true);
    socket_.set(zmq::sockopt::router_handover, true);
  });
}

void Socket::PassOnEachSubscription() {
  MustSucceed([&] { socket_.set(zmq::sockopt::xpub_verboser, true); });
}

// By the kernel's probes (tcp only) and not by ZMTP pings: vLLM's Rust frontend takes a ping for a
// broken peer and dies.
void Socket::NoticeVanishedHosts() {
  constexpr int kIdleSeconds = 5;
  constexpr int kProbes = 3;
  MustSucceed([&] {
    socket_.set(zmq::sockopt::tcp_keepalive, 1);
    socket_.set(zmq::sockopt::tcp_keepalive_idle, kIdleSeconds);
    socket_.set(zmq::sockopt::tcp_keepalive_intvl, kIdleSeconds);
    socket_.set(zmq::sockopt::tcp_keepalive_cnt, kProbes);
    // The same limit while data waits to be acknowledged.
    socket_.set(zmq::sockopt::tcp_maxrt, kIdleSeconds * kProbes * 1000);
  });
}

void Socket::SetKeysToBind(const TcpKeys& keys) {
  MustSucceed([&] {
    socket_.set(zmq::sockopt::curve_server, true);
    socket_.set(zmq::sockopt::curve_secretkey, keys.own_secret);
    socket_.set(zmq::sockopt::zap_domain, "tandem");
  });
}

void Socket::SetKeysToConnect(const TcpKeys& keys) {
  MustSucceed([&] {
    socket_.set(zmq::sockopt::curve_serverkey, keys.peer_public);
    socket_.set(zmq::sockopt::curve_publickey, keys.own_public);
    socket_.set(zmq::sockopt::curve_secretkey, keys.own_secret);
  });
}

// cppzmq has no name for the option.
void Socket::RefuseOtherUsers() {
  for (const uid_t user : {geteuid(), uid_t{0}}) {
    CHECK_EQ(zmq_setsockopt(socket_.handle(), ZMQ_IPC_FILTER_UID, &user, sizeof(user)), 0)
        << zmq_strerror(zmq_errno());
  }
}

namespace {

// Names stay IPv4: libzmq tries one address of a host, which may listen at the other one.
void AllowIpv6(zmq::socket_t* socket, const std::string& address) {
  if (address.starts_with("tcp://[")) socket->set(zmq::sockopt::ipv6, true);
}

}  // namespace

Status Socket::Bind(const std::string& address) {
  try {
    AllowIpv6(&socket_, address);
    socket_.bind(address);
    return OkStatus();
  } catch (const zmq::error_t& error) {
    return ErrnoError(error.num(), "bind " + address);
  }
}

Status Socket::Connect(const std::string& address) {
  try {
    AllowIpv6(&socket_, address);
    socket_.connect(address);
    return OkStatus();
  } catch (const zmq::error_t& error) {
    return ErrnoError(error.num(), "connect " + address);
  }
}

std::string Socket::bound_address() const {
  std::string address;
  MustSucceed([&] { address = socket_.get(zmq::sockopt::last_endpoint); });
  return address;
}

// Not zmq::monitor_t: the pair inside it cannot be polled together with other sockets.
void Socket::Monitor(zmq::context_t& context) {
  static std::atomic<int> next{0};
  const std::string address = "inproc://monitor-" + std::to_string(next++);
  constexpr int kEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED;
  CHECK_EQ(zmq_socket_monitor(socket_.handle(), address.c_str(), kEvents), 0);
  MustSucceed([&] {
    monitor_ = zmq::socket_t(context, zmq::socket_type::pair);
    monitor_.set(zmq::sockopt::linger, 0);
    monitor_.connect(address);
  });
}

bool Socket::NextEvent(ConnectionEvent* event) {
  if (monitor_.handle() == nullptr) return false;
  ReceivedMessage message;
  may_have_events_ = message.ReceiveFrom(monitor_);
  if (!may_have_events_) return false;
  // Frame 0: 16 bits of event, 32 bits of value, as they lie in memory. Frame 1: the address.
  uint16_t kind;
  int32_t value;
  const std::string_view frame = message.frames()[0];
  CHECK_GE(frame.size(), sizeof(kind) + sizeof(value));
  std::memcpy(&kind, frame.data(), sizeof(kind));
  std::memcpy(&value, frame.data() + sizeof(kind), sizeof(value));
  event->opened = kind != ZMQ_EVENT_DISCONNECTED;
  event->connection = value;
  return true;
}

void Socket::Close(int linger_ms) {
  if (!is_open()) return;
  // Before its pair closes: a socket that reports to a pair without a reader waits for one.
  if (monitor_.handle() != nullptr) zmq_socket_monitor(socket_.handle(), nullptr, 0);
  monitor_.close();
  may_have_input_ = may_have_events_ = true;
  MustSucceed([&] { socket_.set(zmq::sockopt::linger, linger_ms); });
  socket_.close();
}

bool Socket::Send(std::span<const std::string_view> frames) {
  may_have_input_ = true;  // a send takes in the signals of what has arrived
  for (size_t i = 0; i < frames.size(); ++i) {
    zmq::send_flags flags = zmq::send_flags::dontwait;
    if (i + 1 < frames.size()) flags = flags | zmq::send_flags::sndmore;
    const bool sent =
        Uninterrupted([&] { return socket_.send(zmq::buffer(frames[i]), flags).has_value(); });
    if (!sent) return false;  // only the first frame can be refused
  }
  return true;
}

bool Socket::Receive(ReceivedMessage* message) {
  may_have_input_ = message->ReceiveFrom(socket_);
  return may_have_input_;
}

StatusOr<KeyPair> NewKeyPair() {
  char public_key[41] = {}, secret_key[41] = {};
  if (zmq_curve_keypair(public_key, secret_key) == 0) return KeyPair{public_key, secret_key};
  return ErrnoError(errno, "keys cannot be made");
}

std::string BytesOfKey(const std::string& z85) {
  uint8_t bytes[32];
  if (z85.size() != 40 || zmq_z85_decode(bytes, z85.c_str()) == nullptr) return "";
  return {reinterpret_cast<const char*>(bytes), sizeof(bytes)};
}

void WarnIfOpenToNetwork(std::string_view address) {
  if (!IsOpenToNetwork(address)) return;
  LOG_WARNING << address << " is open to the network: prompts and outputs are sent unencrypted and "
              << "anyone who can reach the port can take part";
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
  wake_up_ = &wake_up;
  sources_.assign(1, Source());
  fds_.assign(1, {wake_up.fd(), POLLIN, 0});
}

void PollSet::Add(Socket& socket) {
  if (!socket.is_open()) return;
  Add(&socket.socket_, &socket.may_have_input_);
  if (socket.monitor_.handle() != nullptr) Add(&socket.monitor_, &socket.may_have_events_);
}

void PollSet::Add(zmq::socket_t* socket, bool* may_have_input) {
  sources_.push_back({socket, may_have_input});
  MustSucceed([&] { fds_.push_back({socket->get(zmq::sockopt::fd), POLLIN, 0}); });
}

bool PollSet::Wait(int timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    bool is_ready = HasInput();
    int wait_ms = is_ready ? 0 : timeout_ms;
    if (wait_ms > 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      wait_ms = std::max(0, static_cast<int>(left.count()));
    }
    const int num_signaled = ::poll(fds_.data(), fds_.size(), wait_ms);
    CHECK(num_signaled >= 0 || errno == EINTR) << std::strerror(errno);
    if (num_signaled > 0 && TakeSignals()) is_ready = true;
    if (is_ready) return true;
    if (num_signaled == 0) return false;
  }
}

// A socket's descriptor is signaled once, for whatever is new to it. So one that may have input is
// looked into before its descriptor is slept on.
bool PollSet::HasInput() {
  bool has_input = false;
  for (const Source& source : sources_) {
    if (source.socket == nullptr || !*source.may_have_input) continue;
    MustSucceed([&] {
      *source.may_have_input = (source.socket->get(zmq::sockopt::events) & ZMQ_POLLIN) != 0;
    });
    has_input = has_input || *source.may_have_input;
  }
  return has_input;
}

// Whether the WakeUp was signaled.
bool PollSet::TakeSignals() {
  bool is_woken = false;
  for (size_t i = 0; i < fds_.size(); ++i) {
    if (fds_[i].revents == 0) continue;
    if (sources_[i].socket != nullptr) {
      *sources_[i].may_have_input = true;
    } else {
      wake_up_->Clear();
      is_woken = true;
    }
  }
  return is_woken;
}

}  // namespace tandem::wire
