// Reading a message of the wire, ours against msgpack-c's unpacker: MsgpackReader straight into the
// records (the codec) · msgpack::unpack, a tree of objects in a zone that is used again, copied
// into the same records · msgpack::parse with a visitor that stores nothing, the least that any
// decoder on it can cost. msgpack-c checks neither UTF-8 nor what a count promises; ours does. A
// decode step of range(0) requests with stats, and a request of 1000 prompt tokens.

#include <benchmark/benchmark.h>

#include <msgpack.hpp>
#include <stdexcept>
#include <tuple>

#include "proto_msgpack/codec.h"
#include "proto_msgpack/fields.h"
#include "tests/bench/wire_messages.h"
#include "tests/support/heap/num_allocations.h"

namespace tandem::wire {
namespace {

// ---- The tree into the records, by the codec's own table of fields ----

using Object = msgpack::object;

template <class T>
requires(std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) void Read(const Object& object,
                                                                              T* value) {
  object.convert(*value);
}
template <class T>
requires std::is_enum_v<T>
void Read(const Object& object, T* value) { *value = static_cast<T>(object.as<int64_t>()); }
void Read(const Object& object, RawValue* value) {
  msgpack::sbuffer packed;  // the tree does not keep the bytes
  msgpack::pack(packed, object);
  value->packed.assign(packed.data(), packed.size());
}
void Read(const Object& object, StopReason* value) {
  object.type == msgpack::type::STR ? * value = object.as<std::string>()
                                    : * value = object.as<int64_t>();
}
void Read(const Object& /*object*/, LogprobsRows* /*rows*/) {
  throw std::logic_error("no message here has logprobs");
}
template <class T>
void Read(const Object& object, std::optional<T>* value);
template <class T>
void Read(const Object& object, Rare<T>* value);
template <class A, class B>
void Read(const Object& object, std::vector<std::pair<A, B>>* map);
template <class T>
void Read(const Object& object, std::vector<T>* list);
template <ArrayRecord T>
void Read(const Object& object, T* record);
template <MapRecord T>
void Read(const Object& object, T* record);

template <class T>
void ReadOrDefault(const Object& object, T* value) {
  if (!object.is_nil()) return Read(object, value);
  if constexpr (requires { value->clear(); }) {
    value->clear();
  } else {
    *value = T();
  }
}
template <class T>
void Read(const Object& object, std::optional<T>* value) {
  Read(object, &value->emplace());
}
template <class T>
void Read(const Object& object, Rare<T>* value) {
  Read(object, &value->emplace());
}
template <class A, class B>
void Read(const Object& object, std::vector<std::pair<A, B>>* map) {
  map->clear();
  for (const auto& [key, entry] : object.via.map) {
    auto& [a, b] = map->emplace_back();
    Read(key, &a);
    Read(entry, &b);
  }
}
template <class T>
void Read(const Object& object, std::vector<T>* list) {
  if (object.type != msgpack::type::ARRAY) throw msgpack::type_error();
  list->resize(object.via.array.size);
  for (size_t i = 0; i < list->size(); ++i) Read(object.via.array.ptr[i], &(*list)[i]);
}
template <ArrayRecord T>
void Read(const Object& object, T* record) {
  if (object.type != msgpack::type::ARRAY) throw msgpack::type_error();
  const Object* next = object.via.array.ptr;
  const Object* const end = next + object.via.array.size;
  const auto read = [&]<auto kMember, Form kForm>(At<kMember, kForm> /*field*/) {
    if (next != end) ReadOrDefault(*next++, &(record->*kMember));
  };
  std::apply([&](auto... field) { (read(field), ...); }, typename ArrayOf<T>::Fields());
}
template <MapRecord T>
void Read(const Object& object, T* record) {
  if (object.type != msgpack::type::MAP) throw msgpack::type_error();
  *record = T();
  const auto read = [&]<auto kMember, Sent kSent, Form kForm>(
      std::string_view name, const Object& entry, Key<kMember, kSent, kForm> key) {
    if (name != key.name) return false;
    ReadOrDefault(entry, &(record->*kMember));
    return true;
  };
  for (uint32_t i = 0; i < object.via.map.size; ++i) {
    const auto& [name, entry] = object.via.map.ptr[i];
    const std::string_view text(name.via.str.ptr, name.via.str.size);
    std::apply([&](auto... key) { (void)(read(text, entry, key) || ...); }, MapOf<T>::kKeys);
  }
}

bool Borrow(msgpack::type::object_type /*type*/, size_t /*size*/, void* /*context*/) {
  return true;  // strings stay in the message
}

// ---- The measurements ----

// Runs decode until it is measured; counts what one call takes from operator new.
template <class Function>
void Measure(benchmark::State& state, const Function& decode) {
  decode();
  const int64_t before = NumAllocations();
  decode();
  state.counters["allocations"] = static_cast<double>(NumAllocations() - before);
  for (auto _ : state) decode();
}

template <class Record>
void MeasureTree(benchmark::State& state, const EncodedMessage& message, const Record& want) {
  msgpack::zone zone;
  Record record;
  Measure(state, [&] {
    zone.clear();
    size_t offset = 0;
    const Object tree =
        msgpack::unpack(zone, message.body.data(), message.body.size(), offset, Borrow);
    Read(tree, &record);
  });
  if (!(record == want)) state.SkipWithError("decoded to another record");
}

void MeasureParser(benchmark::State& state, const EncodedMessage& message) {
  msgpack::null_visitor nothing;
  Measure(state, [&] {
    if (!msgpack::parse(message.body.data(), message.body.size(), nothing)) std::abort();
  });
}

void StepOurs(benchmark::State& state) {
  const EngineCoreOutputs want = Step(state.range(0));
  EncodedMessage message;
  Encode(want, &message);
  const std::string_view frames[] = {message.body};
  EngineCoreOutputs outputs;
  Measure(state, [&] {
    if (!Decode(frames, &outputs).ok()) std::abort();
  });
  if (!(outputs == want)) state.SkipWithError("decoded to another record");
}
BENCHMARK(StepOurs)->Arg(1)->Arg(64)->Arg(256);

void StepTree(benchmark::State& state) {
  const EngineCoreOutputs want = Step(state.range(0));
  EncodedMessage message;
  Encode(want, &message);
  MeasureTree(state, message, want);
}
BENCHMARK(StepTree)->Arg(1)->Arg(64)->Arg(256);

void StepParserAlone(benchmark::State& state) {
  EncodedMessage message;
  Encode(Step(state.range(0)), &message);
  MeasureParser(state, message);
}
BENCHMARK(StepParserAlone)->Arg(1)->Arg(64)->Arg(256);

void RequestOurs(benchmark::State& state) {
  EncodedMessage message;
  Encode(LongRequest(), &message);
  const std::string_view frames[] = {message.body};
  Measure(state, [&] {
    if (!DecodeInput(0, frames).ok()) std::abort();
  });
}
BENCHMARK(RequestOurs);

void RequestTree(benchmark::State& state) {
  EncodedMessage message;
  Encode(LongRequest(), &message);
  MeasureTree(state, message, LongRequest());
}
BENCHMARK(RequestTree);

void RequestParserAlone(benchmark::State& state) {
  EncodedMessage message;
  Encode(LongRequest(), &message);
  MeasureParser(state, message);
}
BENCHMARK(RequestParserAlone);

}  // namespace
}  // namespace tandem::wire
