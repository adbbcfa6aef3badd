#pragma once

// What every record that was read from the wire promises: it is sent and read again unchanged.

#include <string_view>
#include <vector>

#include "common/check.h"
#include "proto_msgpack/codec.h"

namespace tandem::wire {

// encode(record, &message) and decode(frames, &record), into the used record, as the endpoints do.
template <class Record, class EncodeRecord, class DecodeRecord>
void CheckSendsAgain(Record record, const EncodeRecord& encode, const DecodeRecord& decode) {
  EncodedMessage first, second;
  encode(record, &first);
  std::vector<std::string_view> frames = {first.body};
  frames.insert(frames.end(), first.aux.begin(), first.aux.end());
  const Status again = decode(frames, &record);
  CHECK(again.ok()) << again.ToString();
  encode(record, &second);
  // Their bytes are compared, because NaN differs from itself.
  CHECK(first.body == second.body);
  CHECK(first.aux == second.aux);
}

}  // namespace tandem::wire
