#pragma once

// The reader's end of the connection to one holder: keeps leases alive while their requests wait,
// orders blocks and receives them straight into the cache.
// Thread: the reader's. Owns its socket, which does not block. The connection is made when it is
// needed, and again after it was lost. Memory: tickets and orders of the requests, one head.
// Failure: of a read, its KvReadEnd. What the holder sends is checked against what was ordered; a
// holder that breaks the protocol or makes no progress is disconnected. A block that was being
// received is then undefined, and reported as not read.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "engine_core/kv_remote/address.h"
#include "engine_core/kv_remote/block_parts.h"
#include "engine_core/kv_remote/shared_cache.h"
#include "engine_core/kv_remote/wire.h"

namespace tandem {

// Blocks [first, first + blocks.size()) of a lease go to these of this cache.
struct KvReadJob {
  RequestId id;
  KvTicket ticket = {};
  uint32_t first = 0;
  std::vector<BlockId> blocks = {};
  std::vector<BlockHash> hashes = {};  // parallel: what has to come
};

struct KvReadEnd {
  RequestId id;
  Status status = {};                       // why not all came
  std::vector<BlockId> failed_blocks = {};  // those that did not; all before them did
  bool has_any = false;
};

struct KvReaderOptions {
  double connect_s = 5;  // until the holder's welcome
  double stall_s = 20;   // without a whole block
  double idle_s = 60;    // with nothing to do
};

// What all peers share; the reader's.
struct KvReading {
  BlockParts parts;
  KvShape shape;
  KvReaderOptions options;
  std::function<void(KvReadEnd)> on_end;
};

class KvPeer {
 public:
  KvPeer(KvAddress address, const KvReading* reading, double now)
      : address_(std::move(address)), reading_(reading), last_use_(now) {}

  // A request waits that will read under this ticket.
  void Hold(const RequestId& id, const KvTicket& ticket, double now);
  // It is released when it has ended.
  void Read(KvReadJob job, double now);
  // REQUIRES: the request has no read.
  void Release(const RequestId& id, double now);

  int fd() const { return socket_.get(); }  // -1: not connected
  int16_t events() const;                   // of poll
  void OnReady(int16_t events, double now);
  // Something is to be done then, by OnTime; infinity: nothing.
  double deadline() const;
  void OnTime(double now);
  // Nothing is left to do, and has not been for a while.
  bool is_over(double now) const;

 private:
  struct Order {
    KvReadJob job;
    uint64_t number = 0;
    size_t num_read = 0;
    // Of one whose blocks are copied here: where they are, and how many have been. They count once
    // the holder has confirmed the lease.
    std::vector<uint32_t> places = {};
    size_t num_copied = 0;
  };

  bool is_idle() const { return held_.empty() && waiting_.empty() && sent_.empty(); }
  bool has_welcome() const { return lease_s_ > 0; }
  // Where blocks are copied, the next order whose are not yet; or null.
  Order* NextToCopy();
  const Order* NextToCopy() const { return const_cast<KvPeer*>(this)->NextToCopy(); }
  void CopySome(double now);
  double OrderDeadline() const;
  void Connect(double now);
  void SendOrders(double now);
  void SendHolds(double now);
  Status Flush();
  Status Receive(double now);
  ssize_t ReceiveSome(bool wants_file);
  Status TakeHead(double now);
  Status TakeWelcome(std::string_view payload, double now);
  Status TakePlaces();
  Status TakeHeld(double now);
  Status TakePayload(double now);
  Status TakeRefusal(const std::string& reason, double now);
  Status BeginBlock();
  Status EndBlock(double now);
  void EndSent(const std::deque<Order>::iterator& order, const Status& status, double now);
  void End(Order order, const Status& status, double now);
  void Lose(const Status& status, double now);

  const KvAddress address_;
  const KvReading* const reading_;
  UniqueFd socket_;
  bool is_connected_ = false;
  UniqueFd file_;      // came with the welcome, until that has been read
  MappedCache cache_;  // the holder's; of one on another host none
  int64_t num_cache_blocks_ = 0;
  double lease_s_ = 0;  // the holder's; 0: it has not welcomed this connection
  double connected_at_ = 0, last_use_, last_block_ = 0, next_hold_ = 0;
  double order_begin_ = 0;  // when the oldest order became the oldest
  uint64_t num_orders_ = 0;
  std::unordered_map<RequestId, KvTicket> held_;
  std::deque<KvReadJob> waiting_;
  std::deque<Order> sent_;
  std::string out_;
  // What is being received: first a head, then the payload, of a block its head and its bytes.
  enum class Part { kHead, kPayload, kBlock };
  Part part_ = Part::kHead;
  KvFrameHead head_;
  std::array<char, kMaxKvReason> bytes_;  // of a head or a payload
  std::string places_;                    // the payload of kPlaces
  std::vector<iovec> receiving_;
  size_t next_part_ = 0;
};

}  // namespace tandem
