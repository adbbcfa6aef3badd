#pragma once

// A list of token ids that the schema keeps packed (SamplingParams::trace_decode_token_ids).
// Thread: pure functions. Failure: malformed bytes are INVALID_ARGUMENT.

#include <span>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "proto_msgpack/schema.h"

namespace tandem::wire {

RawValue PackedTokenIds(std::span<const TokenId> ids);
StatusOr<std::vector<TokenId>> UnpackTokenIds(const RawValue& value);

}  // namespace tandem::wire
