#pragma once

// Changes of an engine's prefix cache as routers get them, in vLLM 0.33's form: a batch is the
// array [Unix time, events, data-parallel rank], an event a map with "type" first, or an array.
// Also the publisher's configuration, with vLLM's keys and defaults. Thread: plain values and pure
// functions.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "proto_msgpack/schema.h"

namespace tandem::wire {

using KvBlockHash = std::array<uint8_t, 32>;  // a shorter one is at the end

// The cache, and where a connector keeps blocks beyond it: host memory and files. Events of these
// have hashes alone, or all that those of the cache have.
enum class KvMedium { kGpu, kCpu, kStorage };

// Consecutive blocks of one request and one group of layers that became findable.
struct KvBlockStored {
  std::vector<KvBlockHash> block_hashes;
  std::optional<KvBlockHash> parent_block_hash;
  std::vector<TokenId> token_ids;  // of all the blocks
  int32_t block_size = 0;
  struct Lora {
    int32_t id = 0;
    std::string name;
  };
  std::optional<Lora> lora;  // the adapter that computed them
  // The extra keys of each block's hash: the adapter's name, items, the salt. Blocks past the end
  // of the list have none.
  std::vector<std::vector<std::string>> extra_keys;
  int32_t group = 0;
  // Keys that the group's layers see, or positions of their chunks; both 0: they see all.
  int32_t sliding_window = 0;
  int32_t attention_chunk = 0;
  bool is_state = false;  // of recurrent layers, after the block's last token
  // The token after each block, where its hash covers that token; else empty.
  std::vector<TokenId> lookahead_token_ids;
  KvMedium medium = KvMedium::kGpu;
};
struct KvBlockRemoved {
  KvBlockHash block_hash;
  KvMedium medium = KvMedium::kGpu;
  int32_t group = 0;
};
struct KvAllBlocksCleared {};
using KvEvent = std::variant<KvBlockStored, KvBlockRemoved, KvAllBlocksCleared>;

struct KvEventBatch {
  double ts = 0;
  std::vector<KvEvent> events;
  int32_t data_parallel_rank = 0;
  size_t hash_bytes = 32;  // length of the engine's hashes
};

// kInteger: the last 8 bytes, big-endian, as an unsigned integer. kBytes: all hash_bytes.
enum class KvHashForm { kInteger, kBytes };

// kMap: an event is a map with "type" first, as vLLM 0.33 sends it; kArray: [type, field, ...] in
// the same order, as earlier versions did and as llm-d's indexer reads.
enum class KvEventEncoding { kMap, kArray };

std::string EncodeKvEvents(const KvEventBatch& batch, KvHashForm form,
                           KvEventEncoding encoding = KvEventEncoding::kMap);

struct KvEventsConfig {
  bool enable_kv_cache_events = false;
  std::string publisher = "zmq";  // or "null": not published
  std::string endpoint = "tcp://*:5557";
  std::optional<std::string> replay_endpoint;
  int64_t buffer_steps = 10'000;     // batches kept for replay
  int64_t hwm = 100'000;             // batches kept for one slow subscriber
  int64_t max_queue_size = 100'000;  // batches between the engine and the publisher
  std::string topic;
  KvEventEncoding encoding = KvEventEncoding::kMap;  // ours; no key of vLLM's

  bool publishes() const { return enable_kv_cache_events && publisher == "zmq"; }
};

RawValue PackedKvEventsConfig(const KvEventsConfig& config);

}  // namespace tandem::wire
