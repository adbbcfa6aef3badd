#include "engine_core/kv_remote/wire.h"

#include <algorithm>
#include <type_traits>

#include "common/strings.h"

namespace tandem {
namespace {

constexpr uint32_t kMagic = 0x564b4454;  // "TDKV"
constexpr uint16_t kVersion = 1;

template <class T>
void Put(T value, std::string* out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    *out += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

void PutText(std::string_view text, std::string* out) {
  text = text.substr(0, UINT8_MAX);
  *out += static_cast<char>(text.size());
  *out += text;
}

template <class Bytes>
void PutBytes(const Bytes& bytes, std::string* out) {
  out->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Takes a payload apart. The first thing that is missing is remembered; what is read after it is 0.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : left_(bytes) {}

  template <class T>
  T Number() {
    const std::string_view bytes = Take(sizeof(T));
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    }
    return static_cast<T>(value);
  }
  std::string Text() { return std::string(Take(Number<uint8_t>())); }
  template <class Bytes>
  void Fill(Bytes* out) {
    const std::string_view bytes = Take(out->size());
    std::copy(bytes.begin(), bytes.end(), out->begin());
  }
  size_t num_left() const { return left_.size(); }
  // value, if it took all bytes and found what it wanted.
  template <class T>
  StatusOr<T> End(const char* what, T value) const {
    if (is_whole_ && left_.empty()) return value;
    return DataLossError(std::string("a ") + what + " of the wrong length");
  }

 private:
  std::string_view Take(size_t size) {
    if (size > left_.size()) {
      is_whole_ = false;
      left_ = {};
      return {};
    }
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }

  std::string_view left_;
  bool is_whole_ = true;
};

KvTicket TakeTicket(Cursor* cursor) {
  KvTicket ticket;
  ticket.lease = cursor->Number<uint64_t>();
  cursor->Fill(&ticket.secret);
  return ticket;
}

void PutTicket(const KvTicket& ticket, std::string* out) {
  Put(ticket.lease, out);
  PutBytes(ticket.secret, out);
}

std::string Frame(KvFrame kind, uint64_t number, std::string_view payload,
                  uint64_t more_bytes = 0) {
  std::string frame;
  Put(static_cast<uint32_t>(payload.size() + more_bytes), &frame);
  Put(static_cast<uint8_t>(kind), &frame);
  frame.append(3, '\0');
  Put(number, &frame);
  return frame += payload;
}

std::string Printable(std::string_view text) {
  std::string shown(text.substr(0, kMaxKvReason));
  std::ranges::replace_if(
      shown, [](char each) { return each < ' ' || each > '~'; }, '?');
  return shown;
}

}  // namespace

std::string KvDifference(const KvShape& here, const KvShape& there) {
  const auto differ = [](const char* what, const auto& a, const auto& b) {
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(a)>>) {
      return std::string(what) + std::to_string(a) + " there and " + std::to_string(b) + " here";
    } else {
      return std::string(what) + "'" + a + "' there and '" + b + "' here";
    }
  };
  // Written for the peer, whose "there" is here.
  if (here.model != there.model) return differ("model or dtype: ", here.model, there.model);
  if (here.block_size != there.block_size) {
    return differ("--block-size: ", here.block_size, there.block_size);
  }
  if (here.layout != there.layout) return differ("layout of blocks: ", here.layout, there.layout);
  if (here.num_parts != there.num_parts) {
    return differ("parts of a block: ", here.num_parts, there.num_parts);
  }
  if (here.block_bytes != there.block_bytes) {
    return differ("bytes of a block: ", here.block_bytes, there.block_bytes);
  }
  if (here.hashes != there.hashes) {
    return "kind or seed of block hashes (--prefix-caching-hash-algo, PYTHONHASHSEED)";
  }
  return "";
}

std::string KvTicket::ToHex() const {
  std::string bytes;
  PutTicket(*this, &bytes);
  return HexEncode(bytes);
}

std::optional<KvTicket> KvTicket::FromHex(std::string_view hex) {
  if (hex.size() != 2 * kBytes) return std::nullopt;
  const std::optional<std::string> bytes = HexDecode(hex);
  if (!bytes) return std::nullopt;
  Cursor cursor(*bytes);
  return TakeTicket(&cursor);
}

std::string PackKvHello(const KvShape& shape) {
  std::string payload;
  Put(kMagic, &payload);
  Put(kVersion, &payload);
  Put(shape.block_size, &payload);
  Put(shape.num_parts, &payload);
  Put(shape.block_bytes, &payload);
  PutText(shape.model, &payload);
  PutText(shape.layout, &payload);
  PutText(shape.hashes, &payload);
  return Frame(KvFrame::kHello, 0, payload);
}

std::string PackKvTicket(KvFrame kind, const KvTicket& ticket, uint64_t number) {
  std::string payload;
  PutTicket(ticket, &payload);
  return Frame(kind, number, payload);
}

std::string PackKvRead(uint64_t number, const KvReadOrder& order, KvFrame kind) {
  std::string payload;
  payload.reserve(KvReadBytes(order.hashes.size()));
  PutTicket(order.ticket, &payload);
  Put(order.first, &payload);
  Put(static_cast<uint32_t>(order.hashes.size()), &payload);
  for (const BlockHash& hash : order.hashes) PutBytes(hash.bytes, &payload);
  return Frame(kind, number, payload);
}

std::string PackKvWelcome(const KvWelcome& welcome) {
  std::string payload;
  Put(welcome.lease_ms, &payload);
  Put(uint32_t{0}, &payload);
  Put(welcome.num_blocks, &payload);
  return Frame(KvFrame::kWelcome, 0, payload);
}

std::string PackKvRefusal(uint64_t number, std::string_view reason) {
  return Frame(KvFrame::kRefusal, number, reason.substr(0, kMaxKvReason));
}

std::string PackKvPlaces(uint64_t number, std::span<const BlockId> blocks) {
  std::string payload;
  for (const BlockId block : blocks) Put(static_cast<uint32_t>(Index(block)), &payload);
  return Frame(KvFrame::kPlaces, number, payload);
}

std::string PackKvHeld(uint64_t number) { return Frame(KvFrame::kHeld, number, ""); }

std::string PackKvBlockHead(uint64_t number, const KvBlockHead& block, uint64_t block_bytes) {
  std::string payload;
  Put(block.ordinal, &payload);
  PutBytes(block.hash.bytes, &payload);
  Put(block.checksum, &payload);
  return Frame(KvFrame::kBlock, number, payload, block_bytes);
}

StatusOr<KvFrameHead> ReadKvHead(std::string_view bytes) {
  Cursor cursor(bytes);
  KvFrameHead head;
  head.num_bytes = cursor.Number<uint32_t>();
  const auto kind = cursor.Number<uint8_t>();
  std::array<uint8_t, 3> zeros{};
  cursor.Fill(&zeros);
  head.number = cursor.Number<uint64_t>();
  head.kind = static_cast<KvFrame>(kind);
  const bool is_known = (kind >= static_cast<uint8_t>(KvFrame::kHello) &&
                         kind <= static_cast<uint8_t>(KvFrame::kConfirm)) ||
                        (kind >= static_cast<uint8_t>(KvFrame::kWelcome) &&
                         kind <= static_cast<uint8_t>(KvFrame::kHeld));
  if (!is_known || zeros != std::array<uint8_t, 3>{}) {
    return DataLossError("what came is no frame of this protocol");
  }
  return cursor.End("frame head", head);
}

StatusOr<KvShape> ReadKvHello(std::string_view payload) {
  Cursor cursor(payload);
  if (cursor.Number<uint32_t>() != kMagic) return DataLossError("the peer is no TandemConnector");
  const auto version = cursor.Number<uint16_t>();
  if (version != kVersion) {
    return DataLossError("the TandemConnector's protocol has version " + std::to_string(kVersion) +
                         " there and " + std::to_string(version) + " here");
  }
  KvShape shape;
  shape.block_size = cursor.Number<uint32_t>();
  shape.num_parts = cursor.Number<uint32_t>();
  shape.block_bytes = cursor.Number<uint64_t>();
  shape.model = cursor.Text();
  shape.layout = cursor.Text();
  shape.hashes = cursor.Text();
  return cursor.End("hello", std::move(shape));
}

StatusOr<KvTicket> ReadKvTicket(std::string_view payload) {
  Cursor cursor(payload);
  const KvTicket ticket = TakeTicket(&cursor);
  return cursor.End("ticket", ticket);
}

StatusOr<KvReadOrder> ReadKvRead(std::string_view payload) {
  Cursor cursor(payload);
  KvReadOrder order;
  order.ticket = TakeTicket(&cursor);
  order.first = cursor.Number<uint32_t>();
  const auto count = cursor.Number<uint32_t>();
  if (count == 0 || cursor.num_left() != size_t{count} * sizeof(BlockHash::bytes)) {
    return DataLossError("an order to read of the wrong length");
  }
  order.hashes.resize(count);
  for (BlockHash& hash : order.hashes) cursor.Fill(&hash.bytes);
  return cursor.End("order to read", std::move(order));
}

StatusOr<KvWelcome> ReadKvWelcome(std::string_view payload) {
  Cursor cursor(payload);
  KvWelcome welcome;
  welcome.lease_ms = cursor.Number<uint32_t>();
  (void)cursor.Number<uint32_t>();
  welcome.num_blocks = cursor.Number<uint64_t>();
  return cursor.End("welcome", welcome);
}

StatusOr<KvBlockHead> ReadKvBlockHead(std::string_view payload) {
  Cursor cursor(payload);
  KvBlockHead block;
  block.ordinal = cursor.Number<uint32_t>();
  cursor.Fill(&block.hash.bytes);
  block.checksum = cursor.Number<uint32_t>();
  return cursor.End("head of a block", block);
}

StatusOr<std::vector<uint32_t>> ReadKvPlaces(std::string_view payload) {
  Cursor cursor(payload);
  std::vector<uint32_t> blocks(payload.size() / sizeof(uint32_t));
  for (uint32_t& block : blocks) block = cursor.Number<uint32_t>();
  return cursor.End("list of places", std::move(blocks));
}

std::string ReadKvRefusal(std::string_view payload) { return Printable(payload); }

}  // namespace tandem
