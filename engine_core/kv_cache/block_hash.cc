// The low-level SHA256_* calls use the CPU's SHA instructions where present and cost 0.15 us per
// block; the EVP layer that OpenSSL 3 prefers adds 0.2 us.
#define OPENSSL_SUPPRESS_DEPRECATED

#include "engine_core/kv_cache/block_hash.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/strings.h"

namespace tandem {
namespace {

// The first three bits of a CBOR item.
enum CborMajor : uint8_t {
  kUnsigned = 0 << 5,
  kNegative = 1 << 5,  // of -1 - value
  kBytes = 2 << 5,
  kText = 3 << 5,
  kArray = 4 << 5
};
constexpr uint8_t kCborNull = 0xf6;

// A head in the shortest form, as canonical CBOR requires.
void PutHead(CborMajor major, uint64_t value, std::vector<uint8_t>* out) {
  if (value < 24) {
    out->push_back(static_cast<uint8_t>(major | value));
    return;
  }
  const int log_bytes = value <= 0xff ? 0 : value <= 0xffff ? 1 : value <= 0xffffffff ? 2 : 3;
  out->push_back(static_cast<uint8_t>(major | (24 + log_bytes)));
  for (int shift = (8 << log_bytes) - 8; shift >= 0; shift -= 8) {
    out->push_back(static_cast<uint8_t>(value >> shift));
  }
}

void PutText(std::string_view text, std::vector<uint8_t>* out) {
  PutHead(kText, text.size(), out);
  out->insert(out->end(), text.begin(), text.end());
}

void PutInt(int64_t value, std::vector<uint8_t>* out) {
  value < 0 ? PutHead(kNegative, static_cast<uint64_t>(-1 - value), out)
            : PutHead(kUnsigned, static_cast<uint64_t>(value), out);
}

// A tuple that begins with the word for its kind.
void PutTagged(size_t size, std::string_view tag, std::string_view value,
               std::vector<uint8_t>* out) {
  PutHead(kArray, size, out);
  PutText(tag, out);
  PutText(value, out);
}

void PutBytes(std::span<const uint8_t> bytes, std::vector<uint8_t>* out) {
  PutHead(kBytes, bytes.size(), out);
  out->insert(out->end(), bytes.begin(), bytes.end());
}

BlockHash Sha256(std::span<const uint8_t> data) {
  BlockHash hash;
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, data.data(), data.size());
  SHA256_Final(hash.bytes.data(), &context);
  return hash;
}

std::array<uint8_t, 32> DigestOf(std::string_view bytes) {
  return Sha256({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).bytes;
}

// What of the block [begin, end) is embeddings.
struct EmbeddedBlock {
  std::string rows;
  std::string places;  // a byte for each position; empty where the rows are the block's first ones
};

EmbeddedBlock EmbeddedIn(const PromptEmbeddings* embeddings, int32_t begin, int32_t end) {
  EmbeddedBlock block;
  if (embeddings == nullptr) return block;
  int32_t next = begin;
  bool is_prefix = true;
  std::string places(static_cast<size_t>(end - begin), '\0');
  embeddings->ForEachRun(begin, end, [&](PromptEmbeddings::Run run, std::string_view rows) {
    is_prefix = is_prefix && run.begin == next;
    next = run.end();
    block.rows += rows;
    places.replace(static_cast<size_t>(run.begin - begin), static_cast<size_t>(run.num_rows),
                   static_cast<size_t>(run.num_rows), '\1');
  });
  if (!is_prefix) block.places = std::move(places);
  return block;
}

BlockHash Xxh3(std::span<const uint8_t> data) {
  XXH128_canonical_t digest;  // big-endian
  XXH128_canonicalFromHash(&digest, XXH3_128bits(data.data(), data.size()));
  BlockHash hash;
  std::copy(std::begin(digest.digest), std::end(digest.digest),
            hash.bytes.end() - sizeof(digest.digest));
  return hash;
}

}  // namespace

uint64_t BlockHash::ToEventInteger() const {
  uint64_t value = 0;
  for (size_t i = bytes.size() - 8; i < bytes.size(); ++i) value = value << 8 | bytes[i];
  return value;
}

std::string BlockHash::ToHex() const {
  return HexEncode({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

BlockHasher::BlockHasher(int32_t block_size, HashAlgorithm algorithm, std::string_view seed,
                         bool has_lookahead)
    : block_size_(block_size), algorithm_(algorithm), has_lookahead_(has_lookahead) {
  PutText(seed, &item_);
  none_hash_ = HashItem();
  item_.reserve(static_cast<size_t>(block_size) * 5 + 64);
}

BlockHash BlockHasher::HashItem() const {
  return algorithm_ == HashAlgorithm::kSha256Cbor ? Sha256(item_) : Xxh3(item_);
}

// nil, or a tuple of tagged tuples: the adapter, the items by position, the salt, a digest of the
// embeddings, to which a digest of their places is added where tokens come before them.
void BlockHasher::PutExtraKeys(const ExtraKeys& keys, int32_t block_idx) {
  const int32_t begin = block_idx * block_size_;
  const int32_t end = begin + block_size_;
  const bool has_adapter = keys.adapter.id != 0;
  const bool has_salt = block_idx == 0 && !keys.cache_salt.empty();
  const auto num_items = static_cast<size_t>(
      std::count_if(keys.items.begin(), keys.items.end(),
                    [=](const MultimodalItem& item) { return item.Overlaps(begin, end); }));
  const EmbeddedBlock embedded = EmbeddedIn(keys.embeddings.get(), begin, end);
  const size_t num_keys =
      num_items + (has_adapter ? 1 : 0) + (has_salt ? 1 : 0) + (embedded.rows.empty() ? 0 : 1);
  if (num_keys == 0) {
    item_.push_back(kCborNull);
    return;
  }
  PutHead(kArray, num_keys, &item_);
  if (has_adapter) {
    const bool is_reloaded = keys.adapter.version != 0;
    PutTagged(is_reloaded ? 4 : 3, "lora", keys.adapter.name, &item_);
    PutText(keys.adapter.path, &item_);
    if (is_reloaded) PutInt(keys.adapter.version, &item_);
  }
  for (const MultimodalItem& item : keys.items) {
    if (!item.Overlaps(begin, end)) continue;
    PutTagged(3, "mm", item.identifier, &item_);
    PutInt(item.begin - begin, &item_);
  }
  if (has_salt) PutTagged(2, "cache_salt", keys.cache_salt, &item_);
  if (!embedded.rows.empty()) {
    PutHead(kArray, embedded.places.empty() ? 2 : 3, &item_);
    PutText("prompt_embeds", &item_);
    PutBytes(DigestOf(embedded.rows), &item_);
    if (!embedded.places.empty()) PutBytes(DigestOf(embedded.places), &item_);
  }
}

void BlockHasher::Extend(std::span<const TokenId> token_ids, const ExtraKeys& extra_keys,
                         std::vector<BlockHash>* hashes) {
  const auto block_size = static_cast<size_t>(block_size_);
  const auto digest_bytes = DigestBytes(algorithm_);
  const size_t num_hashed = token_ids.size() - (has_lookahead_ && !token_ids.empty() ? 1 : 0);
  for (size_t block = hashes->size(); (block + 1) * block_size <= num_hashed; ++block) {
    const BlockHash& parent = block == 0 ? none_hash_ : (*hashes)[block - 1];
    item_.clear();
    PutHead(kArray, 3, &item_);
    PutHead(kBytes, digest_bytes, &item_);
    item_.insert(item_.end(), parent.bytes.end() - static_cast<ptrdiff_t>(digest_bytes),
                 parent.bytes.end());
    PutHead(kArray, block_size, &item_);
    for (TokenId token : token_ids.subspan(block * block_size, block_size)) {
      PutHead(kUnsigned, static_cast<uint32_t>(token), &item_);
    }
    if (has_lookahead_) PutHead(kArray, 2, &item_);
    PutExtraKeys(extra_keys, static_cast<int32_t>(block));
    if (has_lookahead_) PutInt(token_ids[(block + 1) * block_size], &item_);
    hashes->push_back(HashItem());
  }
}

}  // namespace tandem
