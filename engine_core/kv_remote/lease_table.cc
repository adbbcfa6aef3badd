#include "engine_core/kv_remote/lease_table.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

constexpr double kNever = 1e300;

bool EqualInConstantTime(const KvTicket& a, const KvTicket& b) {
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.secret.size(); ++i) {
    difference = static_cast<uint8_t>(difference | (a.secret[i] ^ b.secret[i]));
  }
  return difference == 0;
}

}  // namespace

void KvLeaseTable::Add(KvLease lease, double now) {
  CHECK_EQ(lease.blocks.size(), lease.hashes.size());
  CHECK(leases_.empty() || leases_.rbegin()->first < lease.ticket.lease);
  lease.end = now + lease_s_;
  next_end_ = std::min(next_end_, lease.end);
  num_blocks_ += static_cast<int64_t>(lease.blocks.size());
  leases_.emplace(lease.ticket.lease, std::move(lease));
}

std::vector<RequestId> KvLeaseTable::MakeRoom() {
  std::vector<RequestId> ended;
  while (lacks_room()) ended.push_back(End(leases_.begin()));
  return ended;
}

const KvLease* KvLeaseTable::Find(const KvTicket& ticket) const {
  const auto found = leases_.find(ticket.lease);
  if (found == leases_.end()) return nullptr;
  return EqualInConstantTime(found->second.ticket, ticket) ? &found->second : nullptr;
}

void KvLeaseTable::Renew(uint64_t lease, double now) {
  const auto found = leases_.find(lease);
  if (found != leases_.end()) found->second.end = now + lease_s_;
}

std::optional<RequestId> KvLeaseTable::Release(const KvTicket& ticket) {
  if (Find(ticket) == nullptr) return std::nullopt;
  return End(leases_.find(ticket.lease));
}

bool KvLeaseTable::GiveUp(const RequestId& id) {
  const auto found =
      std::ranges::find_if(leases_, [&](const auto& one) { return one.second.id == id; });
  if (found == leases_.end()) return false;
  End(found);
  return true;
}

// next_end_ may be too early after a renewal or an end, which costs one look at all of them.
std::vector<RequestId> KvLeaseTable::Expire(double now) {
  std::vector<RequestId> ended;
  if (now < next_end_) return ended;
  next_end_ = kNever;
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    const auto next = std::next(lease);
    if (lease->second.end <= now) {
      ended.push_back(End(lease));
    } else {
      next_end_ = std::min(next_end_, lease->second.end);
    }
    lease = next;
  }
  return ended;
}

RequestId KvLeaseTable::End(Leases::iterator lease) {
  num_blocks_ -= static_cast<int64_t>(lease->second.blocks.size());
  RequestId id = std::move(lease->second.id);
  leases_.erase(lease);
  return id;
}

}  // namespace tandem
