#include "engine_core/kv_event_batch.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "common/own_variable.h"
#include "engine_core/weights/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

Status WrongValue(const std::string& key, const Json& value, const char* allowed) {
  const std::string shown = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return InvalidArgumentError("--kv-events-config: " + key + " is " + shown + ", must be " +
                              allowed);
}

Status SetString(const std::string& key, const Json& value, std::string* out) {
  if (!value.is_string()) return WrongValue(key, value, "a string");
  *out = value.get<std::string>();
  return OkStatus();
}

Status SetCount(const std::string& key, const Json& value, int64_t min, int64_t* out) {
  constexpr int64_t kMax = 1 << 30;
  if (!value.is_number_integer() || value < min || value > kMax) {
    return WrongValue(key, value,
                      min == 0 ? "a whole number from 0 to 2^30" : "a whole number from 1 to 2^30");
  }
  *out = value.get<int64_t>();
  return OkStatus();
}

Status SetKey(const std::string& key, const Json& value, wire::KvEventsConfig* config) {
  if (key == "enable_kv_cache_events") {
    if (!value.is_boolean()) return WrongValue(key, value, "true or false");
    config->enable_kv_cache_events = value.get<bool>();
    return OkStatus();
  }
  if (key == "publisher") {
    if (value.is_null()) return OkStatus();
    if (value != "zmq" && value != "null") return WrongValue(key, value, "\"zmq\" or \"null\"");
    return SetString(key, value, &config->publisher);
  }
  if (key == "replay_endpoint") {
    if (value.is_null()) return OkStatus();
    return SetString(key, value, &config->replay_endpoint.emplace());
  }
  if (key == "encoding") {
    if (value != "map" && value != "array") return WrongValue(key, value, "\"map\" or \"array\"");
    config->encoding =
        value == "array" ? wire::KvEventEncoding::kArray : wire::KvEventEncoding::kMap;
    return OkStatus();
  }
  if (key == "endpoint") return SetString(key, value, &config->endpoint);
  if (key == "topic") return SetString(key, value, &config->topic);
  if (key == "buffer_steps") return SetCount(key, value, 1, &config->buffer_steps);
  if (key == "hwm") return SetCount(key, value, 0, &config->hwm);
  if (key == "max_queue_size") return SetCount(key, value, 1, &config->max_queue_size);
  return InvalidArgumentError("--kv-events-config: no key is called " + key);
}

wire::KvMedium ToWire(KvMedium medium) {
  switch (medium) {
    case KvMedium::kCache:
      break;
    case KvMedium::kHostMemory:
      return wire::KvMedium::kCpu;
    case KvMedium::kFiles:
      return wire::KvMedium::kStorage;
  }
  return wire::KvMedium::kGpu;
}

wire::KvEvent ToWire(BlockStored&& stored, const KvCacheConfig& cache) {
  wire::KvBlockStored out;
  out.block_hashes.reserve(stored.block_hashes.size());
  for (const BlockHash& hash : stored.block_hashes) out.block_hashes.push_back(hash.bytes);
  out.medium = ToWire(stored.medium);
  if (stored.medium != KvMedium::kCache && stored.token_ids.empty()) return out;
  if (stored.parent) out.parent_block_hash = stored.parent->bytes;
  out.token_ids = std::move(stored.token_ids);
  out.lookahead_token_ids = std::move(stored.next_token_ids);
  out.block_size = cache.block_size;
  out.group = stored.group;
  if (cache.groups.IsLocal(stored.group)) {
    out.sliding_window = cache.groups.sliding_window();
    out.attention_chunk = cache.groups.chunk;
    out.is_state = cache.groups.has_states;
  }
  const Adapter& adapter = stored.extra_keys.adapter;
  if (adapter.id != 0) out.lora = wire::KvBlockStored::Lora{adapter.lora_int_id, adapter.name};
  for (size_t i = 0; i < stored.block_hashes.size(); ++i) {
    out.extra_keys.push_back(stored.extra_keys.EventValues(
        stored.first_block + static_cast<int32_t>(i), cache.block_size));
  }
  return out;
}
wire::KvEvent ToWire(BlockRemoved&& removed, const KvCacheConfig&) {
  return wire::KvBlockRemoved{removed.block_hash.bytes, ToWire(removed.medium), removed.group};
}
wire::KvEvent ToWire(AllBlocksCleared&&, const KvCacheConfig&) {
  return wire::KvAllBlocksCleared{};
}

}  // namespace

StatusOr<wire::KvEventsConfig> ParseKvEventsConfig(const std::string& text) {
  wire::KvEventsConfig config;
  if (text.empty()) return config;
  const auto json = ParseJsonObject(text);
  if (!json.ok()) return json.status().WithContext("--kv-events-config");
  for (const auto& [key, value] : json->items()) RETURN_IF_ERROR(SetKey(key, value, &config));
  return config;
}

wire::KvHashForm KvHashFormFromEnvironment() {
  const std::optional<OwnVariable> integers = FindOwnVariable("KV_EVENTS_USE_INT_BLOCK_HASHES");
  return integers && integers->value == "0" ? wire::KvHashForm::kBytes : wire::KvHashForm::kInteger;
}

wire::KvEventBatch ToKvEventBatch(std::vector<KvCacheEvent> events, const KvCacheConfig& cache,
                                  double unix_time) {
  wire::KvEventBatch batch;
  batch.ts = unix_time;
  batch.hash_bytes = DigestBytes(cache.hash_algorithm);
  batch.events.reserve(events.size());
  for (KvCacheEvent& event : events) {
    batch.events.push_back(
        std::visit([&](auto& one) { return ToWire(std::move(one), cache); }, event));
  }
  return batch;
}

}  // namespace tandem
