#include "engine_core/kv_transfer/kv_transfer_params.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "proto_msgpack/codec.h"
#include "proto_msgpack/msgpack_reader.h"

namespace tandem {
namespace {

constexpr size_t kMaxText = 256;
constexpr std::string_view kTrue = "\xc3";

void SetText(std::string_view value, std::string* text) {
  wire::MsgpackReader reader(value);
  if (!reader.NextIsString()) return;
  const std::string_view read = reader.String();
  if (reader.ok() && read.size() <= kMaxText) *text = read;
}

std::optional<int64_t> ReadInt(std::string_view value) {
  wire::MsgpackReader reader(value);
  if (!reader.NextIsInt()) return std::nullopt;
  const int64_t read = reader.Int();
  return reader.ok() ? std::optional(read) : std::nullopt;
}

void SetParam(std::string_view key, std::string_view value, KvTransferParams* params) {
  if (key == "do_remote_decode") params->do_remote_decode = value == kTrue;
  if (key == "do_remote_prefill") params->do_remote_prefill = value == kTrue;
  if (key == "remote_host") SetText(value, &params->remote_host);
  if (key == "remote_port") params->remote_port = ReadInt(value).value_or(0);
  if (key == "remote_ticket") SetText(value, &params->remote_ticket);
  const std::optional<int64_t> count = key == "remote_num_tokens" ? ReadInt(value) : std::nullopt;
  if (count)
    params->remote_num_tokens = static_cast<int32_t>(std::clamp<int64_t>(*count, 0, INT32_MAX));
}

// take(key, value) for each entry of a map, up to the first wrong byte.
template <class Take>
void ForEachEntry(std::string_view map, Take take) {
  wire::MsgpackReader reader(map);
  if (!reader.NextIsMap()) return;
  for (uint32_t left = reader.MapSize(); left > 0 && reader.ok(); --left) {
    const std::string_view key = reader.NextIsString() ? reader.String() : reader.Raw();
    const std::string_view value = reader.Raw();
    if (reader.ok()) take(key, value);
  }
}

wire::RawValue PackedBlocks(std::span<const BlockId> blocks) {
  std::vector<wire::RawValue> group;
  for (const BlockId block : blocks) group.push_back(wire::PackedInt(Index(block)));
  return wire::PackedArray({wire::PackedArray(group)});
}

}  // namespace

KvTransferParams ReadKvTransferParams(const wire::RawValue& extra_args) {
  KvTransferParams params;
  ForEachEntry(extra_args.packed, [&](std::string_view key, std::string_view value) {
    if (key != "kv_transfer_params") return;
    ForEachEntry(value, [&](std::string_view name, std::string_view param) {
      SetParam(name, param, &params);
    });
  });
  return params;
}

wire::RawValue RemotePrefillParams(const std::string& engine_id, const RequestId& request_id,
                                   int32_t num_tokens, const std::optional<RemoteBlocks>& remote) {
  wire::PackedEntries entries = {{"do_remote_prefill", wire::PackedBool(true)},
                                 {"do_remote_decode", wire::PackedBool(false)},
                                 {"remote_engine_id", wire::PackedString(engine_id)},
                                 {"remote_request_id", wire::PackedString(request_id)},
                                 {"remote_num_tokens", wire::PackedInt(num_tokens)},
                                 {"tp_size", wire::PackedInt(1)}};
  if (remote) {
    entries.emplace_back("remote_host", wire::PackedString(remote->host));
    if (remote->port != 0) entries.emplace_back("remote_port", wire::PackedInt(remote->port));
    entries.emplace_back("remote_block_ids", PackedBlocks(remote->blocks));
    entries.emplace_back("remote_ticket", wire::PackedString(remote->ticket));
  }
  return wire::PackedMap(entries);
}

}  // namespace tandem
