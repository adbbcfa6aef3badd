#pragma once

// What the endpoints need of ZeroMQ beyond cppzmq: sockets that never throw and never wait,
// received messages that keep their storage and know their connection, and connections that report
// when they open or close. The only file pair that includes zmq.hpp; what it throws ends in the
// .cc, as a Status or a false. An option that ZeroMQ refuses is our mistake and dies. Thread: a
// socket belongs to one thread at a time; the endpoints make them before the wire thread starts and
// use them only there.

#include <poll.h>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <zmq.hpp>

#include "common/status.h"
#include "proto_msgpack/tcp_keys.h"

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

// What an XSUB sends, and an XPUB receives, for all topics.
inline constexpr std::string_view kSubscribe("\x01", 1), kUnsubscribe("\x00", 1);

// One received message; its storage is used again for the next one.
class ReceivedMessage {
 public:
  ReceivedMessage() = default;
  ReceivedMessage(const ReceivedMessage&) = delete;
  ReceivedMessage& operator=(const ReceivedMessage&) = delete;

  std::span<const std::string_view> frames() const { return frames_; }
  size_t total_bytes() const;
  // The connection it came over, or -1 (inproc).
  int connection();

 private:
  friend class Socket;
  void Clear();
  bool ReceiveFrom(zmq::socket_t& socket);

  std::deque<zmq::message_t> parts_;  // must not move: a small one holds the bytes of its frame
  std::vector<std::string_view> frames_;
};

// A connection of a socket opened or closed. connection: as in ReceivedMessage, for bound sockets.
struct ConnectionEvent {
  bool opened = false;
  int connection = -1;
};

// Room for 4096 sockets: each client has two, each with a monitor's pair. ZeroMQ's own limit is
// 1023.
zmq::context_t MakeContext();

// Empty until Open. Closed by the destructor; what is unsent then is dropped.
class Socket {
 public:
  Socket() = default;
  ~Socket() { Close(); }
  Socket(Socket&& other) noexcept { *this = std::move(other); }
  Socket& operator=(Socket&& other) noexcept;

  // Queues are unlimited as in vLLM (what may be in flight is limited above).
  void Open(zmq::context_t& context, zmq::socket_type type);

  // Options, before Bind or Connect.
  void SetIdentity(std::string_view identity);
  void SetSendLimit(int64_t num_messages);
  void SetReconnectInterval(int first_ms, int max_ms);
  // ROUTER: Send refuses peers that are not connected, and a peer that connects once more takes its
  // identity over from its old connection.
  void FollowPeers();
  // XPUB: Receive has a subscription of each peer, also to what others have subscribed to, and its
  // end.
  void PassOnEachSubscription();
  // Closes connections to a host that vanished without closing them.
  void NoticeVanishedHosts();

  // Over tcp only peers with these keys are spoken to, encrypted: one side binds, the other
  // connects.
  void SetKeysToBind(const TcpKeys& keys);
  void SetKeysToConnect(const TcpKeys& keys);
  // Over ipc only processes of this one's user, and root's, are spoken to.
  void RefuseOtherUsers();

  Status Bind(const std::string& address);
  Status Connect(const std::string& address);
  std::string bound_address() const;
  // From now on NextEvent reports connections. False: no event is there.
  void Monitor(zmq::context_t& context);
  bool NextEvent(ConnectionEvent* event);

  // Sends the frames as one message. False: no such peer (ROUTER) or not connected; nothing was
  // sent.
  bool Send(std::span<const std::string_view> frames);
  // False: no message is there. *message is empty then.
  bool Receive(ReceivedMessage* message);

  // False: as of its PollSet's last Wait nothing has come since Receive, or NextEvent, found
  // nothing. Costs nothing, while to look into an idle socket is a system call.
  bool may_have_input() const { return is_open() && may_have_input_; }
  bool may_have_events() const { return monitor_.handle() != nullptr && may_have_events_; }

  bool is_open() const { return socket_.handle() != nullptr; }
  // What is unsent goes out for at most linger_ms, without this thread.
  void Close(int linger_ms = 0);

 private:
  friend class PollSet;

  zmq::socket_t socket_;
  zmq::socket_t monitor_;
  bool may_have_input_ = true;
  bool may_have_events_ = true;
};

struct KeyPair {  // Z85
  std::string public_key;
  std::string secret_key;
};
// Fails where ZeroMQ was built without encryption.
StatusOr<KeyPair> NewKeyPair();
// REQUIRES: 40 characters of Z85; otherwise empty.
std::string BytesOfKey(const std::string& z85);

// Logs a warning when what crosses to another host is neither encrypted nor authenticated.
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

// What a wire thread sleeps on, rebuilt when sockets change. Borrows what is added, which must not
// move. In place of zmq_poll, which looks into every socket before and after each sleep.
class PollSet {
 public:
  void Reset(const WakeUp& wake_up);
  void Add(Socket& socket);  // the socket and its monitor; nothing when it is not open
  // Until something is ready or the WakeUp was signaled, which is cleared; false: nothing was in
  // time.
  bool Wait(int timeout_ms = -1);

 private:
  struct Source {
    zmq::socket_t* socket = nullptr;  // null: the WakeUp
    bool* may_have_input = nullptr;
  };
  void Add(zmq::socket_t* socket, bool* may_have_input);
  bool HasInput();
  bool TakeSignals();

  const WakeUp* wake_up_ = nullptr;
  std::vector<Source> sources_;
  std::vector<pollfd> fds_;  // of the sources
};

}  // namespace tandem::wire
