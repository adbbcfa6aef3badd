// Messages of an engine and of the handshake: refused, or records that come back the same when they
// are sent again.

#include <string>
#include <vector>

#include "common/check.h"
#include "proto_msgpack/codec.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem::wire {
namespace {

template <class Record>
void Try(Frames frames) {
  Record record;
  if (!Decode(frames, &record).ok()) return;
  if constexpr (std::is_same_v<Record, EngineCoreOutputs>) {
    if (record.is_empty()) return;
  }
  EncodedMessage first, second;
  Encode(record, &first);
  std::vector<std::string_view> sent = {first.body};
  sent.insert(sent.end(), first.aux.begin(), first.aux.end());
  // Into the used record, as the endpoints do.
  const Status again = Decode(sent, &record);
  CHECK(again.ok()) << again.ToString();
  Encode(record, &second);
  // Their bytes are compared, because NaN differs from itself.
  CHECK(first.body == second.body);
  CHECK(first.aux == second.aux);
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
