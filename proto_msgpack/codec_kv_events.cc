#include <string_view>

#include "proto_msgpack/codec_writer.h"
#include "proto_msgpack/kv_events.h"

namespace tandem::wire {
namespace {

class Writer : public MsgpackWriter {
 public:
  Writer(KvHashForm form, KvEventEncoding encoding, size_t hash_bytes)
      : form_(form), encoding_(encoding), hash_bytes_(hash_bytes) {}

  // An event of a type; each field begins with Field.
  void Event(std::string_view type, size_t num_fields) {
    if (encoding_ == KvEventEncoding::kMap) {
      Map(num_fields + 1);
      String("type");
    } else {
      Array(num_fields + 1);
    }
    String(type);
  }
  void Field(std::string_view name) {
    if (encoding_ == KvEventEncoding::kMap) String(name);
  }
  bool is_array() const { return encoding_ == KvEventEncoding::kArray; }
  void Hash(const KvBlockHash& hash) {
    if (form_ == KvHashForm::kBytes) {
      const uint8_t* begin = hash.data() + hash.size() - hash_bytes_;
      Bytes({reinterpret_cast<const char*>(begin), hash_bytes_});
      return;
    }
    uint64_t value = 0;
    for (size_t i = hash.size() - 8; i < hash.size(); ++i) value = value << 8 | hash[i];
    Uint(value);
  }

 private:
  const KvHashForm form_;
  const KvEventEncoding encoding_;
  const size_t hash_bytes_;
};

// What readers of vLLM's events know them by.
std::string_view NameOf(KvMedium medium) {
  return medium == KvMedium::kGpu ? "GPU" : medium == KvMedium::kCpu ? "CPU" : "STORAGE";
}

void Pack(Writer& w, const KvBlockStored& stored) {
  const bool has_window = stored.sliding_window > 0;
  const bool has_lookahead = !stored.lookahead_token_ids.empty();
  // Fields that are left out at the end: the window's; locality, ownership and session_id, which we
  // never have; and the last one. An array has all that come before one.
  const bool pads = has_lookahead && w.is_array();
  const bool has_all = stored.medium == KvMedium::kGpu || !stored.token_ids.empty();
  const size_t num_all = pads ? 15 : size_t{10} + (has_window ? 1 : 0) + (has_lookahead ? 1 : 0);
  w.Event("BlockStored", has_all ? num_all : 7);
  w.Field("block_hashes");
  w.Array(stored.block_hashes.size());
  for (const KvBlockHash& hash : stored.block_hashes) w.Hash(hash);
  w.Field("parent_block_hash");
  stored.parent_block_hash ? w.Hash(*stored.parent_block_hash) : w.Nil();
  w.Field("token_ids");
  w.Array(stored.token_ids.size());
  for (const TokenId token : stored.token_ids) w.Int(token);
  w.Field("block_size");
  w.Int(stored.block_size);
  w.Field("lora_id");
  stored.lora ? w.Int(stored.lora->id) : w.Nil();
  w.Field("medium");
  w.String(NameOf(stored.medium));
  w.Field("lora_name");
  stored.lora ? w.String(stored.lora->name) : w.Nil();
  if (!has_all) return;
  w.Field("extra_keys");
  w.Array(stored.block_hashes.size());
  for (size_t i = 0; i < stored.block_hashes.size(); ++i) {
    if (i >= stored.extra_keys.size() || stored.extra_keys[i].empty()) {
      w.Nil();
      continue;
    }
    w.Array(stored.extra_keys[i].size());
    for (const std::string& value : stored.extra_keys[i]) w.String(value);
  }
  w.Field("group_idx");
  w.Int(stored.group);
  w.Field("kv_cache_spec_kind");
  w.String(has_window                   ? "sliding_window"
           : stored.attention_chunk > 0 ? "chunked_local_attention"
           : stored.is_state            ? "mamba"
                                        : "full_attention");
  if (has_window) {
    w.Field("kv_cache_spec_sliding_window");
    w.Int(stored.sliding_window);
  } else if (pads) {
    w.Nil();
  }
  if (!has_lookahead) return;
  for (int i = 0; pads && i < 3; ++i) w.Nil();
  w.Field("lookahead_token_ids");
  w.Array(stored.lookahead_token_ids.size());
  for (const TokenId token : stored.lookahead_token_ids) {
    w.Array(1);
    w.Int(token);
  }
}

void Pack(Writer& w, const KvBlockRemoved& removed) {
  const bool has_all = removed.medium == KvMedium::kGpu;
  w.Event("BlockRemoved", has_all ? 3 : 2);
  w.Field("block_hashes");
  w.Array(1);
  w.Hash(removed.block_hash);
  w.Field("medium");
  w.String(NameOf(removed.medium));
  if (!has_all) return;
  w.Field("group_idx");
  w.Int(removed.group);
}

void Pack(Writer& w, const KvAllBlocksCleared&) { w.Event("AllBlocksCleared", 0); }

}  // namespace

std::string EncodeKvEvents(const KvEventBatch& batch, KvHashForm form, KvEventEncoding encoding) {
  Writer w(form, encoding, batch.hash_bytes);
  w.Array(3);
  w.Float64(batch.ts);
  w.Array(batch.events.size());
  for (const KvEvent& event : batch.events) {
    std::visit([&w](const auto& one) { Pack(w, one); }, event);
  }
  w.Int(batch.data_parallel_rank);
  return w.Take();
}

RawValue PackedKvEventsConfig(const KvEventsConfig& config) {
  Writer w(KvHashForm::kInteger, KvEventEncoding::kMap, 0);
  w.Map(8);
  w.String("enable_kv_cache_events");
  w.Bool(config.enable_kv_cache_events);
  w.String("publisher");
  w.String(config.publisher);
  w.String("endpoint");
  w.String(config.endpoint);
  w.String("replay_endpoint");
  config.replay_endpoint ? w.String(*config.replay_endpoint) : w.Nil();
  w.String("buffer_steps");
  w.Int(config.buffer_steps);
  w.String("hwm");
  w.Int(config.hwm);
  w.String("max_queue_size");
  w.Int(config.max_queue_size);
  w.String("topic");
  w.String(config.topic);
  return {w.Take()};
}

}  // namespace tandem::wire
