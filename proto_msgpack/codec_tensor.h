#pragma once

// How the codec reads and sends tensors that lie inside other values. Included by the codec only.

#include <cstddef>
#include <cstdint>

#include "proto_msgpack/codec.h"
#include "proto_msgpack/msgpack_reader.h"

namespace tandem::wire {

constexpr size_t kInlineArrayBytes = 256;   // larger arrays travel as frames of their own
constexpr int64_t kMaxArraySize = 1 << 30;  // in one dimension

// The next value, [dtype, shape, data], with the dtype as the sender spells it; views of the
// message. Nothing says that the data has the bytes of the shape.
TensorView UnpackTensor(MsgpackReader& r, uint32_t max_dimensions = 3);

}  // namespace tandem::wire
