#pragma once

// A request's record of the wire as the flight recorder keeps it: the wire's own bytes, and the
// prompt's ids apart, which are most of it. And what names its adapter.
// Pure; any thread. Failure: bytes that PackRequest has not written are DATA_LOSS.

#include <span>

#include "common/ids.h"
#include "common/packed_bytes.h"
#include "common/status.h"
#include "engine_core/kv_cache/extra_keys.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// REQUIRES: the record has no token ids of its own.
void PackRequest(const wire::EngineCoreRequest& record, std::span<const TokenId> token_ids,
                 ByteWriter* out);
StatusOr<wire::EngineCoreRequest> UnpackRequest(ByteReader* in);

// Without its weights.
void PackAdapter(const Adapter& adapter, ByteWriter* out);
Adapter UnpackAdapter(ByteReader* in);

}  // namespace tandem
