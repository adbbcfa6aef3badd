#pragma once

// ZeroMQ for the two endpoints: sockets, received messages and the monitor that tells when a
// connection opens or closes, with errors as Status. Uses the C interface: nothing throws.
// Thread: a socket belongs to one thread at a time; the endpoints make them before the wire thread
// starts and use them only there. Messages are received and sent without waiting.

#include <zmq.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem::wire {

// Lets other threads end the wire thread's poll.
class WakeUp {
 public:
  WakeUp();
  ~WakeUp();
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;
  void Signal() const;  // any thread
  void Clear() const;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// One received message; its storage is used again for the next one.
class ReceivedMessage {
 public:
  ReceivedMessage() = default;
  ~ReceivedMessage() { Clear(); }
  ReceivedMessage(const ReceivedMessage&) = delete;
  ReceivedMessage& operator=(const ReceivedMessage&) = delete;

  // From the socket; false when none is there.
  bool ReceiveFrom(void* socket);
  std::span<const std::string_view> frames() const { return frames_; }
  size_t total_bytes() const;
  // The connection it came over, or -1.
  int connection() const { return connection_; }

 private:
  void Clear();

  std::deque<zmq_msg_t> parts_;  // a zmq_msg_t must not move
  size_t num_used_ = 0;
  std::vector<std::string_view> frames_;
  int connection_ = -1;
};

// A connection of a socket opened or closed. connection: as in ReceivedMessage, for bound sockets.
struct ConnectionEvent {
  bool opened = false;
  int connection = -1;
};

class Context {
 public:
  // Each client has two sockets with a monitor's pair each; ZeroMQ's own limit is 1023.
  Context() : context_(zmq_ctx_new()) { zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, 4096); }
  ~Context() { zmq_ctx_term(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  void* get() const { return context_; }

 private:
  void* context_;
};

// Empty until Open. Closed by the destructor; what is unsent then goes out for at most linger_ms.
class Socket {
 public:
  Socket() = default;
  ~Socket() { Close(); }
  Socket(Socket&& other) noexcept { *this = std::move(other); }
  Socket& operator=(Socket&& other) noexcept;

  // type: ZMQ_ROUTER …; queues are unlimited as in vLLM (what may be in flight is limited above).
  void Open(const Context& context, int type);
  void SetOption(int option, int value);
  void SetIdentity(std::string_view identity);
  Status Bind(const std::string& address);
  Status Connect(const std::string& address);
  std::string bound_address() const;
  // From now on NextEvent tells of connections.
  void Monitor(const Context& context);
  bool NextEvent(ConnectionEvent* event);
  void Close(int linger_ms = 0);

  bool is_open() const { return socket_ != nullptr; }
  void* get() const { return socket_; }
  void* monitor() const { return monitor_; }

  // The frames as one message. False: no such peer (ROUTER) or not connected; nothing was sent.
  bool Send(std::span<const std::string_view> frames);

 private:
  void* socket_ = nullptr;
  void* monitor_ = nullptr;
};

// Closes connections to a host that vanished without closing them. The kernel's probes (tcp only)
// and not ZMTP pings: vLLM's Rust frontend takes a ping for a broken peer and dies.
void NoticeVanishedHosts(Socket* socket);

// Says loudly that what crosses to another host is neither encrypted nor authenticated.
void WarnIfOpenToNetwork(std::string_view address);

// Whether one more complaint about a peer's bytes is logged: a broken peer must not fill the log.
class ComplaintLimit {
 public:
  bool Next() { return ++count_ <= 20 || count_ % 1000 == 0; }

 private:
  int64_t count_ = 0;
};

// The identity of an engine: its index, 2 bytes little-endian.
std::string EngineIdentity(int engine_index);
// -1: not two bytes.
int EngineIndexOf(std::string_view identity);

// What a wire thread sleeps on, rebuilt when sockets change.
class PollSet {
 public:
  void Reset(const WakeUp& wake_up);
  void Add(const Socket& socket);  // the socket and its monitor; nothing when it is not open
  void Wait();                     // until something is ready

 private:
  std::vector<zmq_pollitem_t> items_;
};

}  // namespace tandem::wire
