#pragma once

// What a prefill engine is sent for a request, and what the engine that decodes gets with it. The
// keys of kv_transfer_params are those of vLLM's connectors. Thread: pure functions.

#include "common/ids.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// Whether another engine may compute this request's prompt: nothing of the prompt is part of the
// output, connectors move its KV (that of embeddings stays where it is), and the client has not
// said where it goes.
bool CanPrefillElsewhere(const wire::EngineCoreRequest& request);

// The same prompt, and one token whose choice costs nothing: stop conditions, constraints and
// penalties are the decoding engine's.
wire::EngineCoreRequest PrefillOf(const wire::EngineCoreRequest& request, RequestId prefill_id);

// The map with this value of kv_transfer_params.
wire::RawValue WithKvTransferParams(const wire::RawValue& extra_args, const wire::RawValue& params);

}  // namespace tandem
