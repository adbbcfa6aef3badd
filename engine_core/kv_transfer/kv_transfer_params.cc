#include "engine_core/kv_transfer/kv_transfer_params.h"

#include <string_view>
#include <utility>
#include <vector>

#include "proto_msgpack/codec.h"
#include "proto_msgpack/msgpack_reader.h"

namespace tandem {
namespace {

// Of a boolean key of the map; false: it is not there, or not true.
bool IsTrue(std::string_view map, std::string_view name) {
  wire::MsgpackReader reader(map);
  if (!reader.NextIsMap()) return false;
  for (uint32_t left = reader.MapSize(); left > 0 && reader.ok(); --left) {
    const std::string_view key = reader.NextIsString() ? reader.String() : reader.Raw();
    const std::string_view value = reader.Raw();
    constexpr std::string_view kTrue = "\xc3";
    if (key == name) return reader.ok() && value == kTrue;
  }
  return false;
}

}  // namespace

KvTransferParams ReadKvTransferParams(const wire::RawValue& extra_args) {
  KvTransferParams params;
  wire::MsgpackReader reader(extra_args.packed);
  if (!reader.NextIsMap()) return params;
  for (uint32_t left = reader.MapSize(); left > 0 && reader.ok(); --left) {
    const std::string_view key = reader.NextIsString() ? reader.String() : reader.Raw();
    const std::string_view value = reader.Raw();
    if (!reader.ok() || key != "kv_transfer_params") continue;
    params.do_remote_decode = IsTrue(value, "do_remote_decode");
    params.do_remote_prefill = IsTrue(value, "do_remote_prefill");
  }
  return params;
}

wire::RawValue RemotePrefillParams(const std::string& engine_id, const RequestId& request_id,
                                   int32_t num_tokens) {
  const std::vector<std::pair<std::string_view, wire::RawValue>> entries = {
      {"do_remote_prefill", wire::PackedBool(true)},
      {"do_remote_decode", wire::PackedBool(false)},
      {"remote_engine_id", wire::PackedString(engine_id)},
      {"remote_request_id", wire::PackedString(request_id)},
      {"remote_num_tokens", wire::PackedInt(num_tokens)},
      {"tp_size", wire::PackedInt(1)}};
  wire::RawValue params;
  params.packed = static_cast<char>(0x80 | entries.size());
  for (const auto& [key, value] : entries) {
    params.packed += wire::PackedString(key).packed + value.packed;
  }
  return params;
}

}  // namespace tandem
