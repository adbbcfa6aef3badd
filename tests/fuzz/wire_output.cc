// Messages of an engine and of the handshake: refused, or records that come back the same when they
// are sent again.

#include <string>
#include <vector>

#include "proto_msgpack/codec.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/wire_record.h"

namespace tandem::wire {
namespace {

template <class Record>
void Try(Frames frames) {
  Record record;
  if (!Decode(frames, &record).ok()) return;
  if constexpr (std::is_same_v<Record, EngineCoreOutputs>) {
    if (record.is_empty()) return;
  }
  CheckSendsAgain(
      record, [](const Record& each, EncodedMessage* message) { Encode(each, message); },
      [](Frames again, Record* used) { return Decode(again, used); });
}

}  // namespace
}  // namespace tandem::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  using namespace tandem::wire;
  FuzzInput input(data, size);
  const size_t kind = input.Below(4);
  std::vector<std::string_view> frames = {""};
  for (size_t i = input.Below(3); i > 0; --i) frames.push_back(input.Part());
  frames[0] = input.Rest();
  if (kind == 0) Try<EngineCoreOutputs>(frames);
  if (kind == 1) Try<EngineStatus>(frames);
  if (kind == 2) Try<InitMessage>(frames);
  if (kind == 3) Try<EngineCoreReadyResponse>(frames);
  return 0;
}
