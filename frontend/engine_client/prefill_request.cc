#include "frontend/engine_client/prefill_request.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto_msgpack/codec.h"
#include "proto_msgpack/msgpack_reader.h"

namespace tandem {
namespace {

constexpr std::string_view kParams = "kv_transfer_params";

using Entries = std::vector<std::pair<std::string_view, std::string_view>>;  // packed

// Empty: it is no map.
Entries EntriesOf(std::string_view map) {
  Entries entries;
  wire::MsgpackReader reader(map);
  if (!reader.NextIsMap()) return entries;
  for (uint32_t left = reader.MapSize(); left > 0 && reader.ok(); --left) {
    const std::string_view key = reader.Raw(), value = reader.Raw();
    if (reader.ok()) entries.emplace_back(key, value);
  }
  return entries;
}

void AppendBigEndian(size_t value, size_t num_bytes, std::string* out) {
  for (size_t i = num_bytes; i-- > 0;) out->push_back(static_cast<char>(value >> (8 * i)));
}

wire::RawValue PackedMap(const Entries& entries) {
  wire::RawValue map;
  const size_t size = entries.size();
  if (size < 16) {
    map.packed.push_back(static_cast<char>(0x80 | size));
  } else if (size < 1 << 16) {
    map.packed.push_back('\xde');
    AppendBigEndian(size, 2, &map.packed);
  } else {
    map.packed.push_back('\xdf');
    AppendBigEndian(size, 4, &map.packed);
  }
  for (const auto& [key, value] : entries) map.packed.append(key).append(value);
  return map;
}

// {"do_remote_decode": true, "do_remote_prefill": false}
wire::RawValue ParamsOfPrefill() {
  const std::string decode = wire::PackedString("do_remote_decode").packed;
  const std::string prefill = wire::PackedString("do_remote_prefill").packed;
  return PackedMap({{decode, "\xc3"}, {prefill, "\xc2"}});
}

}  // namespace

bool CanPrefillElsewhere(const wire::EngineCoreRequest& request) {
  const wire::SamplingParams& sampling = request.sampling_params;
  const bool generates = request.pooling_params.is_nil() && !request.abort_immediately;
  const bool has_its_kv_moved = request.prompt_embeds.is_nil() && request.lora_request.is_nil() &&
                                !sampling.skip_reading_prefix_cache.value_or(false);
  const bool shows_prompt =
      sampling.prompt_logprobs.has_value() || !sampling.prompt_logprob_token_ids.is_nil();
  if (!generates || !has_its_kv_moved || shows_prompt || request.resumable) return false;
  const std::string key = wire::PackedString(kParams).packed;
  for (const auto& entry : EntriesOf(sampling.extra_args.packed)) {
    if (entry.first == key) return false;
  }
  return true;
}

wire::EngineCoreRequest PrefillOf(const wire::EngineCoreRequest& request, RequestId prefill_id) {
  wire::EngineCoreRequest prefill = request;
  prefill.request_id = std::move(prefill_id);
  prefill.own = {};
  prefill.reasoning_ended.reset();
  prefill.reasoning_parser_kwargs = {};
  prefill.sampling_params = {};
  wire::SamplingParams& sampling = prefill.sampling_params;
  sampling.temperature = 0;
  sampling.ignore_eos = true;
  sampling.max_tokens = 1;
  sampling.detokenize = false;
  sampling.output_kind = wire::OutputKind::kFinalOnly;
  sampling.extra_args = WithKvTransferParams(request.sampling_params.extra_args, ParamsOfPrefill());
  return prefill;
}

wire::RawValue WithKvTransferParams(const wire::RawValue& extra_args,
                                    const wire::RawValue& params) {
  const std::string key = wire::PackedString(kParams).packed;
  Entries entries = EntriesOf(extra_args.packed);
  std::erase_if(entries, [&key](const auto& entry) { return entry.first == key; });
  entries.emplace_back(key, params.packed);
  return PackedMap(entries);
}

}  // namespace tandem
