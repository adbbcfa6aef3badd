#pragma once

// The holder's end of one reader's connection: receives frames, sends blocks out of the cache.
// Thread: the server's. Owns its socket, which does not block. Memory: a frame that is being
// received, at most kMaxOrders orders, and heads; blocks are sent from where they lie.
// Failure: the reader broke the protocol, made no progress for too long or is gone; the session
// then has to be dropped. What ends with it is no lease: the reader may come back.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"
#include "engine_core/kv_remote/block_parts.h"
#include "engine_core/kv_remote/lease_table.h"
#include "engine_core/kv_remote/wire.h"

namespace tandem {

// What all sessions share; the server's.
struct KvHoldings {
  BlockParts parts;
  KvShape shape;
  double lease_s = 30;
  KvLeaseTable leases;
  UniqueFd memory = {};                  // a file of the cache, to be read only; or none
  std::vector<RequestId> released = {};  // by readers, since the server looked last
  uint64_t num_refused = 0;              // readers
};

class KvSession {
 public:
  // is_local: the reader gets the file of the cache, if there is one.
  KvSession(UniqueFd socket, bool is_local, KvHoldings* holdings, double now)
      : socket_(std::move(socket)),
        holdings_(holdings),
        passes_memory_(is_local && holdings->memory),
        last_progress_(now) {}

  int fd() const { return socket_.get(); }
  int16_t events() const;  // of poll
  // The socket is ready for some of them.
  Status OnReady(int16_t events, double now);
  // It is to be dropped then unless something has happened.
  double deadline() const;

 private:
  struct Order {
    uint64_t number = 0;
    KvTicket ticket;
    uint32_t next = 0, end = 0;  // blocks of the lease
  };

  Status Receive(double now);
  Status TakeFrames(double now);
  Status CheckHead(const KvFrameHead& head) const;
  Status Take(const KvFrameHead& head, std::string_view payload, double now);
  Status Greet(std::string_view payload);
  Status TakeOrder(const KvFrameHead& head, std::string_view payload, double now);
  Status Confirm(uint64_t number, const KvTicket& ticket, double now);
  bool takes_frames() const;
  Status Send(double now);
  bool PrepareNext(double now);

  UniqueFd socket_;
  KvHoldings* const holdings_;
  bool passes_memory_;  // with the next bytes that are sent, after a welcome
  double last_progress_;
  bool is_greeted_ = false;
  bool is_refused_ = false;  // nothing more is taken from it
  std::string in_;           // a frame that is not whole
  std::deque<Order> orders_;
  std::string replies_;  // frames without blocks, to be sent before the next block
  // What is being sent: a frame or more, [next_part_, end) of it is left.
  std::string head_;
  std::vector<iovec> sending_;
  size_t next_part_ = 0;
  std::optional<uint64_t> sends_of_;  // a block of this lease
};

}  // namespace tandem
