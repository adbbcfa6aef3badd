#include "proto_msgpack/kv_events.h"

#include <optional>
#include <string_view>
#include <zmq.hpp>

#include "proto_msgpack/kv_event_publisher.h"

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

KvBlockHash HashEndingIn(uint8_t last) {
  KvBlockHash hash;
  hash.fill(0xee);
  for (size_t i = 24; i < 31; ++i) hash[i] = 0;
  hash[31] = last;
  return hash;
}

KvEventBatch Batch(KvEvent event) {
  KvEventBatch batch;
  batch.ts = 1;
  batch.events.push_back(std::move(event));
  batch.data_parallel_rank = 3;
  return batch;
}

constexpr std::string_view kBatchHead = "\x93\xcb\x3f\xf0\0\0\0\0\0\0\x91"sv;  // [1.0, [

TEST_CASE("KV events: BlockStored is a map with type first, hashes as integers") {
  KvBlockStored stored;
  stored.block_hashes = {HashEndingIn(1), HashEndingIn(2)};
  stored.token_ids = {5, 6, 300, 8};
  stored.block_size = 2;
  stored.extra_keys = {{"abc"}, {}};
  const std::string want =
      std::string(kBatchHead) +
      "\x8b\xa4type\xab"
      "BlockStored\xac"
      "block_hashes\x92\x01\x02\xb1parent_block_hash\xc0\xa9token_ids\x94\x05\x06\xcd\x01\x2c\x08"
      "\xaa"
      "block_size\x02\xa7lora_id\xc0\xa6medium\xa3GPU\xa9lora_name\xc0\xaa"
      "extra_keys\x92\x91\xa3"
      "abc\xc0\xa9group_idx\x00\xb2kv_cache_spec_kind\xae"
      "full_attention\x03"s;
  CHECK(EncodeKvEvents(Batch(stored), KvHashForm::kInteger) == want);
}

TEST_CASE("KV events: blocks beyond the cache have what vLLM's connector sends of them") {
  KvBlockStored stored;
  stored.block_hashes = {HashEndingIn(1), HashEndingIn(2)};
  stored.medium = KvMedium::kCpu;
  const auto encode = [](KvEvent event, KvEventEncoding encoding) {
    return EncodeKvEvents(Batch(std::move(event)), KvHashForm::kInteger, encoding);
  };
  CHECK(encode(stored, KvEventEncoding::kMap) ==
        std::string(kBatchHead) +
            "\x88\xa4type\xab"
            "BlockStored\xac"
            "block_hashes\x92\x01\x02\xb1parent_block_hash\xc0\xa9token_ids\x90\xaa"
            "block_size\x00\xa7lora_id\xc0\xa6medium\xa3"
            "CPU\xa9lora_name\xc0\x03"s);
  CHECK(encode(stored, KvEventEncoding::kArray) == std::string(kBatchHead) +
                                                       "\x98\xab"
                                                       "BlockStored\x92\x01\x02\xc0\x90\x00\xc0\xa3"
                                                       "CPU\xc0\x03"s);
  const KvBlockRemoved removed = {HashEndingIn(7), KvMedium::kStorage};
  CHECK(encode(removed, KvEventEncoding::kMap) ==
        std::string(kBatchHead) +
            "\x83\xa4type\xac"
            "BlockRemoved\xac"
            "block_hashes\x91\x07\xa6medium\xa7STORAGE\x03"s);
}

TEST_CASE("KV events: groups of layers have their number and kind") {
  KvBlockStored stored;
  stored.block_hashes = {HashEndingIn(1)};
  stored.token_ids = {5};
  stored.block_size = 1;
  stored.group = 2;
  stored.attention_chunk = 64;
  CHECK(EncodeKvEvents(Batch(stored), KvHashForm::kInteger)
            .find("group_idx\x02\xb2kv_cache_spec_kind\xb7"
                  "chunked_local_attention\x03") != std::string::npos);
  stored.attention_chunk = 0;
  stored.is_state = true;
  CHECK(
      EncodeKvEvents(Batch(stored), KvHashForm::kInteger).find("kv_cache_spec_kind\xa5mamba\x03") !=
      std::string::npos);
  KvBlockRemoved removed = {HashEndingIn(7)};
  removed.group = 2;
  CHECK(EncodeKvEvents(Batch(removed), KvHashForm::kInteger).find("group_idx\x02\x03") !=
        std::string::npos);
}

TEST_CASE("KV events: as arrays, the tag first and the fields in the same order") {
  KvBlockStored stored;
  stored.block_hashes = {HashEndingIn(1), HashEndingIn(2)};
  stored.token_ids = {5, 6};
  stored.block_size = 1;
  KvEventBatch batch = Batch(stored);
  const std::string got = EncodeKvEvents(batch, KvHashForm::kInteger, KvEventEncoding::kArray);
  CHECK(got == std::string(kBatchHead) +
                   "\x9b\xab"
                   "BlockStored\x92\x01\x02\xc0\x92\x05\x06\x01\xc0\xa3GPU\xc0\x92\xc0\xc0\x00\xae"
                   "full_attention\x03"s);
  stored.sliding_window = 300;
  CHECK(EncodeKvEvents(Batch(stored), KvHashForm::kInteger, KvEventEncoding::kArray)
            .find("\xae"
                  "sliding_window\xcd\x01\x2c\x03") != std::string::npos);
  stored.lookahead_token_ids = {6, 7};
  const auto ends_with = [&](const std::string& end) {
    return EncodeKvEvents(Batch(stored), KvHashForm::kInteger, KvEventEncoding::kArray)
               .find(end + "\xc0\xc0\xc0\x92\x91\x06\x91\x07\x03") != std::string::npos;
  };
  CHECK(ends_with("sliding_window\xcd\x01\x2c"));
  stored.sliding_window = 0;
  CHECK(ends_with("full_attention\xc0"));
  CHECK(EncodeKvEvents(Batch(stored), KvHashForm::kInteger, KvEventEncoding::kArray)
            .find("\xdc\x00\x10\xab") != std::string::npos);
  CHECK(EncodeKvEvents(Batch(KvBlockRemoved{HashEndingIn(7)}), KvHashForm::kInteger,
                       KvEventEncoding::kArray) == std::string(kBatchHead) +
                                                       "\x94\xac"
                                                       "BlockRemoved\x91\x07\xa3GPU\x00\x03"s);
  CHECK(
      EncodeKvEvents(Batch(KvAllBlocksCleared{}), KvHashForm::kInteger, KvEventEncoding::kArray) ==
      std::string(kBatchHead) + "\x91\xb0" + "AllBlocksCleared\x03"s);
}

TEST_CASE("KV events: an adapter is named with its id, and in every block's keys") {
  KvBlockStored stored;
  stored.block_hashes = {HashEndingIn(1), HashEndingIn(2)};
  stored.token_ids = {5, 6};
  stored.block_size = 1;
  stored.lora = KvBlockStored::Lora{7, "ad"};
  stored.extra_keys = {{"ad", "abc"}, {"ad"}};
  const std::string got = EncodeKvEvents(Batch(stored), KvHashForm::kInteger);
  CHECK(got.find("lora_id\x07") != std::string::npos);
  CHECK(got.find("lora_name\xa2"
                 "ad\xaa"
                 "extra_keys\x92\x92\xa2"
                 "ad\xa3"
                 "abc\x91\xa2"
                 "ad\xa9") != std::string::npos);
}

TEST_CASE("KV events: the integer of a hash is its last 8 bytes, big-endian, without a sign") {
  KvBlockRemoved removed;
  for (size_t i = 0; i < 32; ++i) removed.block_hash[i] = static_cast<uint8_t>(0xe0 + i);
  const std::string got = EncodeKvEvents(Batch(removed), KvHashForm::kInteger);
  CHECK(got == std::string(kBatchHead) +
                   "\x84\xa4type\xac"
                   "BlockRemoved\xac"
                   "block_hashes\x91\xcf\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff\xa6medium\xa3GPU"
                   "\xa9group_idx\x00\x03"s);
}

TEST_CASE("KV events: hashes as bytes, the parent too") {
  KvBlockStored stored;
  stored.block_hashes = {HashEndingIn(1)};
  stored.parent_block_hash = HashEndingIn(9);
  const std::string got = EncodeKvEvents(Batch(stored), KvHashForm::kBytes);
  const auto bytes = [](const KvBlockHash& hash) {
    return "\xc4\x20" + std::string(hash.begin(), hash.end());
  };
  CHECK(got.find("block_hashes\x91" + bytes(HashEndingIn(1))) != std::string::npos);
  CHECK(got.find("parent_block_hash" + bytes(HashEndingIn(9))) != std::string::npos);
  CHECK(got.find("extra_keys\x91\xc0") != std::string::npos);
}

TEST_CASE("KV events: a shorter hash has only its own bytes") {
  KvBlockRemoved removed;
  for (size_t i = 16; i < 32; ++i) removed.block_hash[i] = static_cast<uint8_t>(i);
  KvEventBatch batch = Batch(removed);
  batch.hash_bytes = 16;
  const std::string got = EncodeKvEvents(batch, KvHashForm::kBytes);
  CHECK(got.find("block_hashes\x91\xc4\x10" +
                 std::string(removed.block_hash.begin() + 16, removed.block_hash.end())) !=
        std::string::npos);
  CHECK(EncodeKvEvents(batch, KvHashForm::kInteger).find("\x91\xcf\x18\x19") != std::string::npos);
}

TEST_CASE("KV events: as maps, only fields that say something, the next tokens among them") {
  KvBlockStored stored;
  stored.lookahead_token_ids = {6, 7};
  const std::string got = EncodeKvEvents(Batch(stored), KvHashForm::kInteger);
  CHECK(got.find("\x8c\xa4type") != std::string::npos);
  CHECK(got.find("full_attention\xb3lookahead_token_ids\x92\x91\x06\x91\x07") != std::string::npos);
}

TEST_CASE("KV events: blocks of a model with a sliding window have its kind and length") {
  KvBlockStored stored;
  stored.sliding_window = 300;
  const std::string got = EncodeKvEvents(Batch(stored), KvHashForm::kInteger);
  CHECK(got.find("\x8c\xa4type") != std::string::npos);
  CHECK(got.find("kv_cache_spec_kind\xae"
                 "sliding_window\xbckv_cache_spec_sliding_window\xcd\x01\x2c\x03") !=
        std::string::npos);
}

TEST_CASE("KV events: a cleared cache is a map with its type alone") {
  CHECK(EncodeKvEvents(Batch(KvAllBlocksCleared{}), KvHashForm::kInteger) ==
        std::string(kBatchHead) +
            "\x81\xa4type\xb0"
            "AllBlocksCleared\x03");
}

TEST_CASE("KV events: each data-parallel rank has its own endpoint") {
  CHECK(*KvEndpointOfRank("tcp://*:5557", 0) == "tcp://*:5557");
  CHECK(*KvEndpointOfRank("tcp://*:5557", 2) == "tcp://*:5559");
  CHECK(*KvEndpointOfRank("tcp://127.0.0.1:*", 2) == "tcp://127.0.0.1:*");
  CHECK(*KvEndpointOfRank("ipc:///a/b", 0) == "ipc:///a/b");
  CHECK(*KvEndpointOfRank("ipc:///a/b", 2) == "ipc:///a/b_dp2");
  CHECK_FALSE(KvEndpointOfRank("tcp://host", 0).ok());
  CHECK_FALSE(KvEndpointOfRank("tcp://*:65535", 1).ok());
}

// The sequence number of the next batch; nullopt when none comes in time.
std::optional<uint8_t> NextSequence(zmq::socket_t& subscriber, int limit_ms) {
  subscriber.set(zmq::sockopt::rcvtimeo, limit_ms);
  zmq::message_t topic, sequence, batch;
  if (!subscriber.recv(topic)) return std::nullopt;
  REQUIRE(subscriber.recv(sequence) == 8);
  REQUIRE(subscriber.recv(batch));
  return sequence.data<uint8_t>()[7];
}

TEST_CASE(
    "KV events: the publisher connects to a subscriber's address, and Close sends what is queued") {
  zmq::context_t context;
  zmq::socket_t subscriber(context, zmq::socket_type::sub);
  subscriber.set(zmq::sockopt::subscribe, "");
  subscriber.bind("tcp://127.0.0.1:*");
  KvEventPublisherOptions options;
  options.config.endpoint = subscriber.get(zmq::sockopt::last_endpoint);
  KvEventPublisher publisher(options);
  REQUIRE(publisher.Start().ok());
  uint8_t sent = 0;
  std::optional<uint8_t> got;
  while (!got) {  // until the subscription has arrived
    publisher.Publish(Batch(KvAllBlocksCleared{}));
    ++sent;
    got = NextSequence(subscriber, 100);
  }
  for (int i = 0; i < 20; ++i) publisher.Publish(Batch(KvAllBlocksCleared{}));
  sent += 20;
  publisher.Close();
  while (*got + 1 < sent) {
    const auto next = NextSequence(subscriber, 20'000);
    REQUIRE(next == *got + 1);
    got = next;
  }
}

TEST_CASE("KV events: an address that cannot be bound is an error of Start") {
  KvEventPublisherOptions options;
  options.config.endpoint = "ipc:///nowhere/at/all";
  KvEventPublisher publisher(options);
  CHECK_FALSE(publisher.Start().ok());
}

}  // namespace
}  // namespace tandem::wire
