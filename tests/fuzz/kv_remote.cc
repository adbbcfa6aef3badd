// Both ends of the protocol that passes KV on, against a peer that sends anything. A holder sends
// no block but to who shows the ticket; a reader ends each read, and what it says it has read is
// what the other cache has.

#include <unistd.h>

#include <algorithm>
#include <string>

#include "tests/fuzz/fuzz_input.h"
#include "tests/support/kv_remote/remote_blocks.h"

namespace tandem {
namespace {

// What is written to a socket of its own, without waiting.
std::string TakeAll(int socket) {
  std::string all(1 << 16, '\0');
  const ssize_t size = recv(socket, all.data(), all.size(), MSG_DONTWAIT);
  all.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return all;
}

const BlockParts& FilledParts() {
  static const std::unique_ptr<KvCache> cache = MakeSmallKvCache(8);
  static const BlockParts parts = [] {
    const BlockParts made = BlockParts::Of({{.cache = cache.get()}}).value();
    for (int i = 1; i < 8; ++i) FillRemoteBlock(made, BlockId{i}, 0);
    return made;
  }();
  return parts;
}

void FuzzHolder(FuzzInput* input) {
  const bool knows_ticket = input->Below(2) == 1;
  int fds[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  const UniqueFd own(fds[0]);
  KvHoldings holdings = {
      .parts = FilledParts(), .shape = RemoteShape(), .leases = KvLeaseTable(30, 100)};
  KvLease lease = RemoteLease(1, "a", 5);
  if (!knows_ticket) lease.ticket.secret[3] ^= 0x5a;
  holdings.leases.Add(lease, 0);
  KvSession session(UniqueFd(fds[1]), /*is_local=*/false, &holdings, 0);
  std::string bytes;
  if (input->Below(4) > 0) bytes += PackKvHello(RemoteShape());
  for (size_t i = input->Below(6); i > 0; --i) {
    const auto first = static_cast<uint32_t>(input->Below(8));
    KvReadOrder order = {.ticket = RemoteTicket(1), .first = first};
    for (size_t j = 1 + input->Below(5); j > 0; --j) {
      order.hashes.push_back(RemoteHash(static_cast<int>(first + order.hashes.size() + 1)));
    }
    const size_t act = input->Below(8);
    bytes += act > 1    ? PackKvRead(i, order, act > 4 ? KvFrame::kRead : KvFrame::kFind)
             : act == 1 ? PackKvTicket(KvFrame::kConfirm, RemoteTicket(1), i)
                        : PackKvTicket(KvFrame::kRelease, RemoteTicket(1));
  }
  const std::string_view strange = input->Rest();
  const size_t at = strange.empty() ? 0 : static_cast<uint8_t>(strange[0]) % (bytes.size() + 1);
  bytes.insert(at, strange);
  std::string received;
  for (size_t sent = 0; sent < bytes.size();) {
    const size_t size = std::min<size_t>(bytes.size() - sent, 1 + strange.size() % 97);
    if (send(own.get(), bytes.data() + sent, size, MSG_NOSIGNAL) < 0) break;
    sent += size;
    if (!session.OnReady(POLLIN | POLLOUT, 1).ok()) break;
    received += TakeAll(own.get());
  }
  if (!knows_ticket) CHECK(holdings.released.empty());
  // All of its frames are whole until it is closed; without the ticket none is a block.
  std::string_view left = received;
  while (left.size() >= kKvHeadBytes) {
    const auto head = ReadKvHead(left.substr(0, kKvHeadBytes));
    CHECK(head.ok());
    const bool tells = head->kind != KvFrame::kWelcome && head->kind != KvFrame::kRefusal;
    CHECK(knows_ticket || !tells);
    left.remove_prefix(std::min(left.size(), kKvHeadBytes + head->num_bytes));
  }
}

void FuzzReader(FuzzInput* input) {
  static const std::string path = "/tmp/tandem-fuzz-" + std::to_string(getpid());
  static const std::unique_ptr<KvCache> cache = MakeSmallKvCache(8);
  static const BlockParts parts = BlockParts::Of({{.cache = cache.get()}}).value();
  std::vector<KvReadEnd> ends;
  const KvReading reading = {
      .parts = parts, .shape = RemoteShape(), .options = {}, .on_end = [&](KvReadEnd end) {
        ends.push_back(std::move(end));
      }};
  KvAddress own = {.path = path};
  const UniqueFd waits = ListenAt(&own).value();
  KvPeer peer(own, &reading, 0);
  peer.Read(RemoteJob("b", RemoteTicket(1), 3), 0);
  const UniqueFd holder(accept4(waits.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  unlink(own.path.c_str());
  CHECK(holder.get() >= 0);
  std::string bytes;
  if (input->Below(4) > 0) bytes += PackKvWelcome({.lease_ms = 1000});
  for (size_t i = 1 + input->Below(4); i > 1; --i) {
    const auto block = static_cast<int>(input->Below(4) + 1);
    const KvBlockHead head = {.ordinal = static_cast<uint32_t>(block - 1),
                              .hash = RemoteHash(block),
                              .checksum = FilledParts().Checksum(BlockId{block})};
    bytes += PackKvBlockHead(1, head, kSmallKvBlockBytes);
    std::vector<iovec> pieces;
    FilledParts().AppendTo(&pieces, BlockId{block});
    for (const iovec& one : pieces) bytes.append(static_cast<char*>(one.iov_base), one.iov_len);
  }
  const std::string_view strange = input->Rest();
  const size_t at = strange.empty() ? 0 : static_cast<uint8_t>(strange[0]) * 4 % (bytes.size() + 1);
  bytes.insert(at, strange);
  (void)send(holder.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  for (int i = 0; i < 4 && peer.fd() >= 0 && ends.empty(); ++i) {
    peer.OnReady(POLLIN | POLLOUT, 1);
  }
  peer.OnTime(1000);  // what has not come by now never does
  CHECK_EQ(ends.size(), 1u);
  CHECK_EQ(ends[0].status.ok(), ends[0].failed_blocks.empty());
  const size_t num_read = 3 - ends[0].failed_blocks.size();
  for (size_t i = 1; i <= num_read; ++i) {
    const auto block = static_cast<int>(i);
    CHECK_EQ(parts.Checksum(BlockId{block + 1}), FilledParts().Checksum(BlockId{block}));
  }
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzInput input(data, size);
  input.Below(2) == 0 ? tandem::FuzzHolder(&input) : tandem::FuzzReader(&input);
  return 0;
}
