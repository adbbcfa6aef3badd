#pragma once

// The golden wire vectors and generic views of packed bytes, for tests of the codec and of whatever
// sends on the wire. Thread: any. Bad golden files end the test program.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "proto_msgpack/codec.h"

namespace tandem::wire {

// One recorded message.
struct GoldenMessage {
  std::string name;
  std::string type;                 // python_types.jsonl.gz: "ADD", "OUT" …; else empty
  std::vector<std::string> frames;  // as sent; the type byte of an input message is frames[0]
  nlohmann::json decoded;
};
// file: a name under tests/golden/wire.
std::vector<GoldenMessage> ReadGolden(const std::string& file);

// Views of frames, from the first-th on.
std::vector<std::string_view> Views(const std::vector<std::string>& frames, size_t first = 0);
std::vector<std::string_view> Views(const EncodedMessage& message);

// One packed value as JSON (nil for empty bytes), by a reader that shares no code with ours.
nlohmann::json ToJson(std::string_view packed);

// What the strictest known frontend (vllm-rs 0.33) would take for the death of the engine in this
// message on an ordinary output socket; empty when nothing.
std::string FindFatalFault(const std::vector<std::string_view>& frames);

}  // namespace tandem::wire
