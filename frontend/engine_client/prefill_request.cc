#include "frontend/engine_client/prefill_request.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto_msgpack/codec.h"
#include "proto_msgpack/msgpack_reader.h"

namespace tandem {
namespace {

constexpr std::string_view kParams = "kv_transfer_params";

// Empty: it is no map. The keys are views of its bytes.
wire::PackedEntries EntriesOf(std::string_view map) {
  wire::PackedEntries entries;
  wire::MsgpackReader reader(map);
  if (!reader.NextIsMap()) return entries;
  for (uint32_t left = reader.MapSize(); left > 0 && reader.ok(); --left) {
    const std::string_view key = reader.String(), value = reader.Raw();
    if (reader.ok()) entries.emplace_back(key, wire::RawValue{std::string(value)});
  }
  return entries;
}

// {"do_remote_decode": true, "do_remote_prefill": false}
wire::RawValue ParamsOfPrefill() {
  return wire::PackedMap({{"do_remote_decode", wire::PackedBool(true)},
                          {"do_remote_prefill", wire::PackedBool(false)}});
}

}  // namespace

bool CanPrefillElsewhere(const wire::EngineCoreRequest& request) {
  const wire::SamplingParams& sampling = request.sampling_params;
  const bool generates = request.pooling_params.is_nil() && !request.abort_immediately;
  const bool has_its_kv_moved =
      request.prompt_embeds.is_nil() && !sampling.skip_reading_prefix_cache.value_or(false);
  const bool shows_prompt =
      sampling.prompt_logprobs.has_value() || !sampling.prompt_logprob_token_ids.is_nil();
  if (!generates || !has_its_kv_moved || shows_prompt || request.resumable) return false;
  const wire::PackedEntries args = EntriesOf(sampling.extra_args.packed);
  return std::ranges::none_of(args, [](const auto& entry) { return entry.first == kParams; });
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
  wire::PackedEntries entries = EntriesOf(extra_args.packed);
  std::erase_if(entries, [](const auto& entry) { return entry.first == kParams; });
  entries.emplace_back(kParams, params);
  return wire::PackedMap(entries);
}

}  // namespace tandem
