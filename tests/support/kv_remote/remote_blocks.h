#pragma once

// A small cache with bytes of its own, and both ends of the KV protocol without a scheduler: what a
// hostile reader or holder sends is written by hand. Thread: the test's.

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/mailbox.h"
#include "engine_core/kv_remote/reader.h"
#include "engine_core/kv_remote/server.h"
#include "tests/support/kv_remote/small_kv_cache.h"

namespace tandem {

// A block's bytes as its number and a salt decide.
inline void FillRemoteBlock(const BlockParts& parts, BlockId block, int salt) {
  std::vector<iovec> pieces;
  parts.AppendTo(&pieces, block);
  for (size_t i = 0; i < pieces.size(); ++i) {
    std::memset(pieces[i].iov_base, static_cast<int>(i) + 7 * Index(block) + salt,
                pieces[i].iov_len);
  }
}

inline BlockHash RemoteHash(int number) {
  BlockHash hash;
  hash.bytes.fill(static_cast<uint8_t>(number));
  return hash;
}

inline KvTicket RemoteTicket(uint64_t lease, int secret = 1) {
  KvTicket ticket = {.lease = lease};
  ticket.secret.fill(static_cast<uint8_t>(secret));
  return ticket;
}

inline KvShape RemoteShape() {
  return {.model = "m",
          .layout = "l",
          .hashes = "h",
          .block_size = 4,
          .num_parts = 2 * kSmallKvLayers,
          .block_bytes = kSmallKvBlockBytes};
}

// Blocks 1..count under hashes 1..count.
inline KvLease RemoteLease(uint64_t number, const RequestId& id, int count) {
  KvLease lease = {.ticket = RemoteTicket(number), .id = id};
  for (int i = 1; i <= count; ++i) {
    lease.blocks.push_back(BlockId{i});
    lease.hashes.push_back(RemoteHash(i));
  }
  return lease;
}

// To blocks 2..count + 1 of a cache.
inline KvReadJob RemoteJob(const RequestId& id, const KvTicket& ticket, int count) {
  KvReadJob job = {.id = id, .ticket = ticket};
  for (int i = 1; i <= count; ++i) {
    job.blocks.push_back(BlockId{i + 1});
    job.hashes.push_back(RemoteHash(i));
  }
  return job;
}

// The next thing that a thread posts; fails the process after a generous while.
template <class T>
T NextOf(Mailbox<T>* box) {
  CHECK(box->WaitFor(std::chrono::seconds(60)));
  std::vector<T> all;
  box->Drain(&all);
  CHECK_EQ(all.size(), 1u);
  return std::move(all.front());
}

// A socket of which the test writes and reads every byte; blocking, with a limit.
class RawSocket {
 public:
  explicit RawSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  // Once it can be sent to. False: the peer is gone.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      Wait(POLLOUT);
      const ssize_t size = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size < 0 && errno == EAGAIN) continue;
      if (size <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(size));
    }
    return true;
  }
  // Fewer bytes: the peer has closed.
  std::string Receive(size_t size) {
    std::string bytes(size, '\0');
    size_t num_received = 0;
    while (num_received < size) {
      Wait(POLLIN);
      const ssize_t count = recv(fd_.get(), bytes.data() + num_received, size - num_received, 0);
      if (count < 0 && errno == EAGAIN) continue;
      if (count <= 0) break;
      num_received += static_cast<size_t>(count);
    }
    bytes.resize(num_received);
    return bytes;
  }
  struct Frame {
    KvFrameHead head;
    std::string payload;
  };
  Frame ReceiveFrame() {
    Frame frame;
    const auto head = ReadKvHead(Receive(kKvHeadBytes));
    CHECK(head.ok()) << head.status().ToString();
    frame.head = *head;
    frame.payload = Receive(head->num_bytes);
    return frame;
  }
  bool is_closed_by_peer() { return Receive(1).empty(); }
  int fd() const { return fd_.get(); }

 private:
  void Wait(int16_t events) {
    pollfd waited = {fd_.get(), events, 0};
    CHECK_GT(poll(&waited, 1, 60000), 0);
  }
  UniqueFd fd_;
};

inline RawSocket ConnectRaw(const KvAddress& address) {
  auto fd = ConnectTo(address);
  CHECK(fd.ok()) << fd.status().ToString();
  return RawSocket(*std::move(fd));
}

// The next connection to a listening socket.
inline RawSocket AcceptRaw(int listener) {
  pollfd waited = {listener, POLLIN, 0};
  CHECK_GT(poll(&waited, 1, 60000), 0);
  return RawSocket(UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)));
}

}  // namespace tandem
