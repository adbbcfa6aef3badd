#pragma once

// kv_transfer_params: what a request asks of a connector, and what the response of a prefill says
// to who decodes. Proxies pass them between engines; the keys are those of vLLM's NIXL connector,
// which all of them know. Thread: pure functions.

#include <cstdint>
#include <string>

#include "common/ids.h"
#include "proto_msgpack/schema.h"

namespace tandem {

struct KvTransferParams {
  bool do_remote_decode = false;   // another engine will decode: its KV is to be left for it
  bool do_remote_prefill = false;  // another engine has computed the prompt
};

// Of a request's extra_args. Keys that are unknown, and values of another type, say nothing.
KvTransferParams ReadKvTransferParams(const wire::RawValue& extra_args);

// Of the response to a request with do_remote_decode.
wire::RawValue RemotePrefillParams(const std::string& engine_id, const RequestId& request_id,
                                   int32_t num_tokens);

}  // namespace tandem
