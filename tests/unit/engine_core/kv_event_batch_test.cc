#include "engine_core/kv_event_batch.h"

#include <cstdlib>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("kv-events-config: off by default, vLLM's defaults once it is given") {
  CHECK_FALSE(ParseKvEventsConfig("")->publishes());
  CHECK_FALSE(ParseKvEventsConfig("{}")->publishes());
  const auto config = ParseKvEventsConfig(R"({"enable_kv_cache_events": true})");
  REQUIRE(config.ok());
  CHECK(config->publishes());
  CHECK(config->endpoint == "tcp://*:5557");
  CHECK_FALSE(config->replay_endpoint);
  CHECK(config->buffer_steps == 10000);
  CHECK(config->hwm == 100000);
  CHECK(config->max_queue_size == 100000);
  CHECK(config->topic.empty());
}

TEST_CASE("kv-events-config: every key is read") {
  const auto config = ParseKvEventsConfig(
      R"({"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "ipc:///e",
          "replay_endpoint": "ipc:///r", "buffer_steps": 3, "hwm": 4, "max_queue_size": 5,
          "topic": "kv@pod@model"})");
  REQUIRE(config.ok());
  CHECK(config->endpoint == "ipc:///e");
  CHECK(config->replay_endpoint == "ipc:///r");
  CHECK(config->buffer_steps == 3);
  CHECK(config->hwm == 4);
  CHECK(config->max_queue_size == 5);
  CHECK(config->topic == "kv@pod@model");
  CHECK_FALSE(
      ParseKvEventsConfig(R"({"enable_kv_cache_events": true, "publisher": "null"})")->publishes());
}

TEST_CASE("kv-events-config: an error names the wrong key or value") {
  const auto message = [](const char* text) {
    const auto config = ParseKvEventsConfig(text);
    REQUIRE_FALSE(config.ok());
    return config.status().message();
  };
  CHECK_THAT(message("{"), Contains("--kv-events-config"));
  CHECK_THAT(message(R"({"enabled": true})"), Contains("enabled"));
  CHECK_THAT(message(R"({"buffer_steps": 0})"), Contains("buffer_steps") && Contains("0"));
  CHECK_THAT(message(R"({"hwm": "many"})"), Contains("hwm") && Contains("many"));
  CHECK_THAT(message(R"({"publisher": "kafka"})"), Contains("kafka") && Contains("zmq"));
  CHECK_THAT(message(R"({"hwm": 18446744073709551615})"), Contains("hwm"));
}

TEST_CASE("KV events of places beyond the cache have hashes and the place") {
  BlockStored stored;
  stored.block_hashes.resize(2);
  stored.medium = KvMedium::kHostMemory;
  KvCacheConfig cache;
  cache.block_size = 16;
  const auto batch = ToKvEventBatch({stored, BlockRemoved{{}, KvMedium::kFiles}}, cache, 1);
  const auto& out = std::get<wire::KvBlockStored>(batch.events[0]);
  CHECK(out.medium == wire::KvMedium::kCpu);
  CHECK(out.block_hashes.size() == 2);
  CHECK(out.block_size == 0);
  CHECK(out.extra_keys.empty());
  CHECK(std::get<wire::KvBlockRemoved>(batch.events[1]).medium == wire::KvMedium::kStorage);
}

TEST_CASE("KV events are converted with the block size, the parent and the extra keys") {
  BlockStored stored;
  stored.block_hashes.resize(2);
  stored.block_hashes[1].bytes[31] = 7;
  stored.parent.emplace().bytes[0] = 1;
  stored.token_ids = {1, 2, 3, 4};
  stored.next_token_ids = {3, 9};
  stored.extra_keys = {.adapter = {.id = 7, .name = "l", .path = "/l", .lora_int_id = 3},
                       .items = {{.identifier = "image", .begin = 3, .num_tokens = 4}},
                       .cache_salt = "s"};
  KvCacheConfig cache;
  cache.block_size = 2;
  cache.groups = LayerGroups::OfWindow(9);
  const auto batch = ToKvEventBatch({stored, BlockRemoved{*stored.parent}, AllBlocksCleared{}},
                                    cache, /*unix_time=*/12.5);
  CHECK(batch.ts == 12.5);
  REQUIRE(batch.events.size() == 3);
  const auto& first = std::get<wire::KvBlockStored>(batch.events[0]);
  CHECK(first.block_hashes[1] == stored.block_hashes[1].bytes);
  CHECK(first.parent_block_hash == stored.parent->bytes);
  CHECK(first.token_ids == stored.token_ids);
  CHECK(first.lookahead_token_ids == stored.next_token_ids);
  CHECK(first.block_size == 2);
  using Values = std::vector<std::vector<std::string>>;
  CHECK(first.extra_keys == Values{{"l", "s"}, {"l", "image"}});
  REQUIRE(first.lora.has_value());
  CHECK(first.lora->id == 3);
  CHECK(first.lora->name == "l");
  CHECK(first.sliding_window == 9);
  CHECK(std::get<wire::KvBlockRemoved>(batch.events[1]).block_hash == stored.parent->bytes);
  CHECK(std::holds_alternative<wire::KvAllBlocksCleared>(batch.events[2]));
}

TEST_CASE("KV events have the group of layers, and what its layers see") {
  BlockStored stored;
  stored.block_hashes.resize(1);
  stored.token_ids = {1, 2};
  KvCacheConfig cache;
  cache.block_size = 2;
  cache.groups = {.num_full = 1, .num_local = 1, .window = 9};
  BlockStored local = stored;
  local.group = 1;
  const auto batch = ToKvEventBatch({stored, local, BlockRemoved{.block_hash = {}, .group = 1}},
                                    cache, /*unix_time=*/1);
  const auto& first = std::get<wire::KvBlockStored>(batch.events[0]);
  const auto& second = std::get<wire::KvBlockStored>(batch.events[1]);
  CHECK((first.group == 0 && first.sliding_window == 0));
  CHECK((second.group == 1 && second.sliding_window == 9));
  CHECK(std::get<wire::KvBlockRemoved>(batch.events[2]).group == 1);
  cache.groups = {.num_full = 1, .num_local = 1, .chunk = 8};
  const auto chunks = ToKvEventBatch({local}, cache, /*unix_time=*/1);
  CHECK(std::get<wire::KvBlockStored>(chunks.events[0]).attention_chunk == 8);
  cache.groups = LayerGroups::OfStates(1, 1);
  const auto states = ToKvEventBatch({stored, local}, cache, /*unix_time=*/1);
  const auto& keys = std::get<wire::KvBlockStored>(states.events[0]);
  const auto& state = std::get<wire::KvBlockStored>(states.events[1]);
  CHECK((!keys.is_state && state.is_state && state.sliding_window == 0));
}

TEST_CASE("KV events of later blocks carry no salt") {
  BlockStored stored;
  stored.block_hashes.resize(2);
  stored.first_block = 1;
  stored.extra_keys.cache_salt = "s";
  KvCacheConfig cache;
  cache.block_size = 2;
  const auto batch = ToKvEventBatch({stored}, cache, /*unix_time=*/0);
  const auto& got = std::get<wire::KvBlockStored>(batch.events[0]);
  CHECK(got.extra_keys == std::vector<std::vector<std::string>>(2));
  CHECK_FALSE(got.lora.has_value());
}

}  // namespace
}  // namespace tandem
