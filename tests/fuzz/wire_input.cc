// Messages to the engine, with the frames after their bodies: refused, or records that come back
// the same when they are sent again.

#include <string>
#include <vector>

#include "proto_msgpack/codec.h"
#include "proto_msgpack/multimodal.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/wire_record.h"

namespace tandem::wire {
namespace {

template <class Record>
void CheckRecord(uint8_t type, const Record& record) {
  const auto encode = [](const Record& each, EncodedMessage* message) {
    if constexpr (std::is_same_v<Record, EngineCoreRequest>) {
      Encode(each, message, Peer::kTandem);
    } else {
      Encode(each, message);
    }
  };
  const auto decode = [type](Frames frames, Record* again) -> Status {
    auto input = DecodeInput(type, frames);
    if (!input.ok()) return input.status();
    *again = std::get<Record>(*std::move(input));
    return OkStatus();
  };
  CheckSendsAgain(record, encode, decode);
}

void CheckFeatures(const EngineCoreRequest& request) {
  const auto features = DecodeFeatures(request);
  if (!features.ok()) return;
  EngineCoreRequest again;
  EncodeFeatures(*features, &again);
  const auto read = DecodeFeatures(again);
  CHECK(read.ok()) << read.status().ToString();
  CHECK(*read == *features);
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
    CheckRecord(type, *request);
    (void)DecodeTensor(request->prompt_embeds, request->aux_frames);
    CheckFeatures(*request);
  } else if (const auto* abort = std::get_if<AbortRequest>(&*input)) {
    CheckRecord(type, *abort);
  } else if (const auto* call = std::get_if<UtilityRequest>(&*input)) {
    CheckRecord(type, *call);
  } else if (const auto* wave = std::get_if<StartDpWave>(&*input)) {
    CheckRecord(type, *wave);
  }
  return 0;
}
