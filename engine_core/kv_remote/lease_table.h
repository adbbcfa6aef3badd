#pragma once

// Whose KV blocks wait for a reader, and until when. A lease ends when its reader releases it, when
// the reader gives no sign of life for lease_s, or when younger ones need its room: all leases
// together have at most max_blocks blocks, unless a single one has more.
// Thread: one. Owns no blocks. Units: seconds of any one clock.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/ids.h"
#include "engine_core/kv_cache/block_hash.h"
#include "engine_core/kv_remote/wire.h"

namespace tandem {

struct KvLease {
  KvTicket ticket;
  RequestId id;
  std::vector<BlockId> blocks = {};
  std::vector<BlockHash> hashes = {};  // parallel
  double end = 0;
};

class KvLeaseTable {
 public:
  KvLeaseTable(double lease_s, int64_t max_blocks) : lease_s_(lease_s), max_blocks_(max_blocks) {}

  // Begins a lease; its number is greater than those before. Then others may have to MakeRoom.
  void Add(KvLease lease, double now);
  bool lacks_room() const { return num_blocks_ > max_blocks_ && leases_.size() > 1; }
  // Ends the oldest ones until there is room.
  std::vector<RequestId> MakeRoom();
  // Null: there is no such lease, or the secret is not its own. Compared in constant time.
  const KvLease* Find(const KvTicket& ticket) const;
  bool Has(uint64_t lease) const { return leases_.contains(lease); }
  // A sign of life.
  void Renew(uint64_t lease, double now);
  // Ends a lease; nullopt: there is none with this ticket.
  std::optional<RequestId> Release(const KvTicket& ticket);
  // Ends the lease of this request. False: it has none.
  bool GiveUp(const RequestId& id);
  // Ends those whose time is over.
  std::vector<RequestId> Expire(double now);
  // No lease ends before; infinity: there is none.
  double next_end() const { return next_end_; }
  size_t size() const { return leases_.size(); }

 private:
  using Leases = std::map<uint64_t, KvLease>;  // the oldest first
  RequestId End(Leases::iterator lease);

  const double lease_s_;
  const int64_t max_blocks_;
  Leases leases_;
  int64_t num_blocks_ = 0;
  double next_end_ = 1e300;
};

}  // namespace tandem
