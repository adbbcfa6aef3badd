#pragma once

// Records of schema.h to bytes and back. Encoding is that of vLLM's Python, byte for byte: arrays
// at full length, maps in key order without keys at their default (statistics and start-up maps:
// every key), floats as 64 bits. Decoding also accepts the encoding of vllm-rs: 32-bit floats,
// integers for floats, nil for a default; shorter and longer arrays; unknown keys.
// Thread: pure functions. Encode clears *message first and keeps its capacity; decoding into a used
// record keeps the capacity of its lists.
// Failure: wrong, random or truncated bytes are INVALID_ARGUMENT, never a crash, and take no more
// memory than a small multiple of the message. After a failure *record is valid but unspecified.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "proto_msgpack/schema.h"

namespace tandem::wire {

// One message to send: frame 0, and the arrays too large to be inline. The request type byte of an
// input message is not part of it.
struct EncodedMessage {
  std::string body;
  std::vector<std::string> aux;
};

// REQUIRES: nothing is set in record.own unless the engine's READY says kTandem.
void Encode(const EngineCoreRequest& record, EncodedMessage* message, Peer peer = Peer::kForeign);
void Encode(const AbortRequest& record, EncodedMessage* message);
void Encode(const StartDpWave& record, EncodedMessage* message);
void Encode(const UtilityRequest& record, EncodedMessage* message);
// REQUIRES: !record.is_empty()
void Encode(const EngineCoreOutputs& record, EncodedMessage* message);
void Encode(const EngineStatus& record, EncodedMessage* message);
void Encode(const InitMessage& record, EncodedMessage* message);
void Encode(const EngineCoreReadyResponse& record, EncodedMessage* message);

// frames[0] is the body, the rest are aux frames.
using Frames = std::span<const std::string_view>;
// type: the byte before the body, a RequestType.
StatusOr<EngineInput> DecodeInput(uint8_t type, Frames frames);
Status Decode(Frames frames, EngineCoreOutputs* record);
Status Decode(Frames frames, EngineStatus* record);
Status Decode(Frames frames, InitMessage* record);
Status Decode(Frames frames, EngineCoreReadyResponse* record);

// The sender of an ADD that cannot be decoded, for an error record; nullopt when not even that can
// be read.
struct Sender {
  RequestId request_id;
  int32_t client_index = 0;
};
std::optional<Sender> FindSender(std::string_view add_body);

// A tensor that a record carries unread, [dtype, shape, data]: a view of the value or of a frame.
struct TensorView {
  std::string_view dtype;      // torch's name: "float32", "bfloat16"
  std::vector<int64_t> shape;  // at most 3 sizes, each below 2^30
  std::string_view data;
};
StatusOr<TensorView> DecodeTensor(const RawValue& value, std::span<const std::string> aux_frames);
// The value with its data inside.
RawValue PackedTensor(const TensorView& tensor);
// The value; the data becomes the next one of the record's aux_frames.
RawValue EncodeTensor(const TensorView& tensor, std::vector<std::string>* aux_frames);

// A list of true and false that a record carries unread.
StatusOr<std::vector<bool>> UnpackBools(const RawValue& value);
RawValue PackedBools(const std::vector<bool>& values);

// Single values, for utility arguments and results.
RawValue PackedBool(bool value);
RawValue PackedInt(int64_t value);
RawValue PackedString(std::string_view value);
RawValue PackedStrings(const std::vector<std::string>& values);
RawValue PackedArray(const std::vector<RawValue>& values);
using PackedEntries = std::vector<std::pair<std::string_view, RawValue>>;
RawValue PackedMap(const PackedEntries& entries);

}  // namespace tandem::wire
