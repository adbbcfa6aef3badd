#pragma once

// The protocol by which engines pass KV on. The reader of a request's KV (it decodes) connects
// to its holder (it has prefilled). All numbers are little-endian. A frame is a head of 16 bytes
// {payload bytes u32, kind u8, 0 u8 x 3, number u64} and its payload; a reply has the number of
// what it replies to. First comes a hello; everything else may follow before its reply.
//   reader → holder: kHello, kHold (the request still waits), kRead, kRelease
//   holder → reader: kWelcome, kBlock (one for each block that is read, in order), kRefusal
// On one host the welcome brings a file with it, the holder's cache, which the reader maps and may
// only read. Then it asks where blocks are (kFind: kPlaces), copies them by itself, and asks
// whether the lease has held all the while (kConfirm: kHeld); what it copied counts only then.
// Either end takes the other one for hostile: a frame's length is checked against the limit of its
// kind before it is received, and every field before it is used.
// Thread: pure functions. Failure: DATA_LOSS with what is wrong.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "engine_core/kv_cache/block_hash.h"

namespace tandem {

enum class KvFrame : uint8_t {
  kHello = 1,
  kHold,
  kRead,
  kRelease,
  kFind,
  kConfirm,
  kWelcome = 17,
  kBlock,
  kRefusal,
  kPlaces,
  kHeld,
};

struct KvFrameHead {
  uint32_t num_bytes = 0;  // of the payload
  KvFrame kind = KvFrame::kHello;
  uint64_t number = 0;
};

constexpr size_t kKvHeadBytes = 16;
constexpr size_t kKvBlockHeadBytes = 40;  // of kBlock's payload; the block follows
constexpr size_t kMaxKvReason = 400;
constexpr size_t kMaxKvHello = 1200;

// What a block's bytes mean. Engines with another one cannot read each other's blocks.
struct KvShape {
  std::string model = {};   // its fingerprint
  std::string layout = {};  // of a block: the backend's
  std::string hashes = {};  // hash of no block: the kind and the seed of block hashes
  uint32_t block_size = 0;
  uint32_t num_parts = 0;  // K and V of each layer
  uint64_t block_bytes = 0;
};
// Names what differs; empty: nothing.
std::string KvDifference(const KvShape& here, const KvShape& there);

// Names a lease and shows the right to read it. As text 48 hex digits.
struct KvTicket {
  static constexpr size_t kBytes = 24;
  uint64_t lease = 0;
  std::array<uint8_t, 16> secret{};

  std::string ToHex() const;
  static std::optional<KvTicket> FromHex(std::string_view hex);
};

// Blocks [first, first + hashes.size()) of a lease, which have to have these hashes.
struct KvReadOrder {
  KvTicket ticket;
  uint32_t first = 0;
  std::vector<BlockHash> hashes = {};
};

struct KvBlockHead {
  uint32_t ordinal = 0;  // among the blocks of the lease
  BlockHash hash = {};
  uint32_t checksum = 0;  // BlockParts::Checksum
};

struct KvWelcome {
  uint32_t lease_ms = 0;
  uint64_t num_blocks = 0;  // of the cache in the file that comes with it; 0: none does
};

std::string PackKvHello(const KvShape& shape);
// kHold, kRelease, kConfirm
std::string PackKvTicket(KvFrame kind, const KvTicket& ticket, uint64_t number = 0);
// kRead, kFind
std::string PackKvRead(uint64_t number, const KvReadOrder& order, KvFrame kind = KvFrame::kRead);
std::string PackKvWelcome(const KvWelcome& welcome);
std::string PackKvRefusal(uint64_t number, std::string_view reason);  // which is cut
std::string PackKvPlaces(uint64_t number, std::span<const BlockId> blocks);
std::string PackKvHeld(uint64_t number);
// The frame without the block's bytes.
std::string PackKvBlockHead(uint64_t number, const KvBlockHead& block, uint64_t block_bytes);

// bytes: kKvHeadBytes.
StatusOr<KvFrameHead> ReadKvHead(std::string_view bytes);
// Of whole payloads; of a block its head.
StatusOr<KvShape> ReadKvHello(std::string_view payload);
StatusOr<KvTicket> ReadKvTicket(std::string_view payload);
StatusOr<KvReadOrder> ReadKvRead(std::string_view payload);
StatusOr<KvWelcome> ReadKvWelcome(std::string_view payload);
StatusOr<KvBlockHead> ReadKvBlockHead(std::string_view payload);
// Numbers of blocks in the holder's cache.
StatusOr<std::vector<uint32_t>> ReadKvPlaces(std::string_view payload);
// What is not printable is replaced: the text is logged.
std::string ReadKvRefusal(std::string_view payload);

// Bytes of a kRead or kFind of num_blocks blocks.
constexpr uint64_t KvReadBytes(uint64_t num_blocks) {
  return KvTicket::kBytes + 8 + 32 * num_blocks;
}

}  // namespace tandem
