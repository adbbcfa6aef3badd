#pragma once

// The bytes of one accepted connection, in both directions, and its end. Knows no HTTP.
// Thread: its shard's. Owns the descriptor.
// The read side is watched from Start to Close, so that a peer's leaving is noticed whatever the
// owner waits for; bytes that arrive meanwhile are kept up to a limit. Writing never blocks: it
// goes straight to the kernel when nothing is queued (no copy, one system call) or waits for the
// end of a WriteBatch, and the rest is sent when the socket drains. A peer may end its side and
// still read: input_ended() is true then and writing continues. After closed() no byte moves in
// either direction.

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "frontend/http/transport.h"
#include "frontend/net/net.h"
#include "frontend/net/send_ring.h"

namespace tandem {

class Connection {
 public:
  // on_end runs inside the call that noticed that the input ended, and in the one that closed it.
  Connection(Shard* shard, int fd, std::unique_ptr<Transport> transport,
             std::function<void()> on_end);
  Connection(const Connection&) = delete;
  ~Connection();

  void Start() { OnReadable(); }
  bool closed() const { return closed_; }
  bool input_ended() const { return input_ended_; }  // also when closed
  void MarkClosed();
  void Close();                                      // gives the descriptor back
  const std::string& peer() const { return peer_; }  // "127.0.0.1:4711"

  // Bytes that arrived and were not taken; the owner erases those that it takes.
  std::string& in() { return in_; }
  // True when more bytes arrived; false after the deadline, or when no more will come.
  Awaitable<bool> MoreInput(double deadline);
  // Gives back the room that earlier requests and responses took; for idle times.
  void ReleaseMemory();
  // From now on input is counted and dropped.
  void Discard();

  // When the first byte after BeginRequest arrived; the time of BeginRequest when one was waiting.
  struct Arrival {
    double unix_s = 0;
    double monotonic_s = 0;
  };
  void BeginRequest();
  const Arrival& arrival() const { return arrival_; }

  using Parts = std::initializer_list<std::string_view>;
  void Write(Parts parts);
  size_t unsent() const { return backlog_.size() - backlog_sent_; }
  // Waits until all is sent, or closes when the peer takes nothing for stall_s.
  Awaitable<void> Drain(double stall_s);
  void ShutdownWrites() {
    SendKept();
    transport_->Shutdown();
  }

  // For WriteBatch: what it is to send, and what came of it.
  SocketSend kept() const;
  void OnKeptSent(ssize_t result);

 private:
  void OnReadable();
  void OnWritable();
  void WatchReads();
  void WatchWrites();
  ssize_t WriteNow(Parts parts);  // the bytes that were taken, or -1 when the peer is gone
  bool CanJoinBatch(Parts parts) const;
  void SendKept();
  void TrimBacklog();
  void StampArrival();
  void EndInput();

  Socket socket_;
  const std::unique_ptr<Transport> transport_;
  const std::function<void()> on_end_;
  const std::string peer_;
  bool closed_ = false;
  bool input_ended_ = false;

  std::string in_;
  Event input_;
  bool reading_ = false;  // a read is armed
  bool discarding_ = false;
  size_t discarded_ = 0;
  bool arrived_ = false;
  Arrival arrival_;

  std::string backlog_;  // the bytes from backlog_sent_ on wait for the kernel
  size_t backlog_sent_ = 0;
  bool writing_ = false;  // a write is armed
  bool is_kept_ = false;  // a WriteBatch sends the backlog
  Event drained_;
};

}  // namespace tandem
