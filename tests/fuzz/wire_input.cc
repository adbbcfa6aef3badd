// Messages to the engine, with the frames after their bodies: refused, or records that come back
// the same when they are sent again.

#include <string>
#include <vector>

#include "common/check.h"
#include "proto_msgpack/codec.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem::wire {
namespace {

// The message of a record that was read, and of what is read from that message.
template <class Record>
void SendAgain(uint8_t type, const Record& record) {
  const auto encode = [](const Record& each, EncodedMessage* message) {
    if constexpr (std::is_same_v<Record, EngineCoreRequest>) {
      Encode(each, message, Peer::kTandem);
    } else {
      Encode(each, message);
    }
  };
  EncodedMessage first, second;
  encode(record, &first);
  std::vector<std::string_view> frames = {first.body};
  frames.insert(frames.end(), first.aux.begin(), first.aux.end());
  const auto again = DecodeInput(type, frames);
  CHECK(again.ok()) << again.status().ToString();
  encode(std::get<Record>(*again), &second);
  // Their bytes are compared, because NaN differs from itself.
  CHECK(first.body == second.body);
  CHECK(first.aux == second.aux);
}

}  // namespace
}  // namespace tandem::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  using namespace tandem::wire;
  FuzzInput fuzz(data, size);
  const auto type = static_cast<uint8_t>(fuzz.Below(7));
  std::vector<std::string_view> frames = {""};
  for (size_t i = fuzz.Below(3); i > 0; --i) frames.push_back(fuzz.Part());
  frames[0] = fuzz.Rest();
  FindSender(frames[0]);
  const auto input = DecodeInput(type, frames);
  if (!input.ok()) return 0;
  if (const auto* request = std::get_if<EngineCoreRequest>(&*input)) {
    SendAgain(type, *request);
    (void)DecodeTensor(request->prompt_embeds, request->aux_frames);
  } else if (const auto* abort = std::get_if<AbortRequest>(&*input)) {
    SendAgain(type, *abort);
  } else if (const auto* call = std::get_if<UtilityRequest>(&*input)) {
    SendAgain(type, *call);
  } else if (const auto* wave = std::get_if<StartDpWave>(&*input)) {
    SendAgain(type, *wave);
  }
  return 0;
}
