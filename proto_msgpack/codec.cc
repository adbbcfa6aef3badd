#include "proto_msgpack/codec.h"

#include <bit>
#include <cstring>
#include <limits>
#include <msgpack.hpp>
#include <type_traits>

#include "common/check.h"
#include "proto_msgpack/fields.h"
#include "proto_msgpack/msgpack_reader.h"

namespace tandem::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are sent as they lie in memory");

// ---- Bytes out ----

constexpr size_t kInlineArrayBytes = 256;  // larger arrays travel as frames of their own
constexpr int8_t kExtRawView = 3;
constexpr char kNil = '\xc0';
constexpr char kEmptyArray = '\x90';
constexpr char kEmptyMap = '\x80';

// Appends to a string whose size runs ahead of what is used, so that a byte costs no call.
class Buffer {
 public:
  explicit Buffer(std::string* bytes) : bytes_(bytes) { bytes_->resize(bytes_->capacity()); }
  ~Buffer() { bytes_->resize(used_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void write(const char* data, size_t size) {  // NOLINT(readability-identifier-naming): msgpack's
    if (size == 0) return;                     // an empty list may have no address
    if (bytes_->size() - used_ < size) bytes_->resize(2 * (used_ + size));
    std::memcpy(bytes_->data() + used_, data, size);
    used_ += size;
  }

 private:
  std::string* bytes_;
  size_t used_ = 0;
};

struct Writer {
  explicit Writer(EncodedMessage* m) : buffer(&m->body), packer(buffer), message(m) {
    message->aux.clear();
  }

  void Nil() { buffer.write(&kNil, 1); }
  void String(std::string_view text) {
    packer.pack_str(static_cast<uint32_t>(text.size()));
    packer.pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
  }
  void Bytes(std::string_view bytes) { buffer.write(bytes.data(), bytes.size()); }

  Buffer buffer;
  msgpack::packer<Buffer> packer;
  EncodedMessage* message;
};

// ---- Pack: one overload per kind of value ----

void Pack(Writer& w, bool value) { value ? w.packer.pack_true() : w.packer.pack_false(); }
void Pack(Writer& w, int32_t value) { w.packer.pack_int32(value); }
void Pack(Writer& w, int64_t value) { w.packer.pack_int64(value); }
// pack_double would send 1.0 as the integer 1; Python never does.
void Pack(Writer& w, double value) {
  char bytes[9] = {'\xcb'};
  const uint64_t big_endian = __builtin_bswap64(std::bit_cast<uint64_t>(value));
  std::memcpy(bytes + 1, &big_endian, sizeof(big_endian));
  w.buffer.write(bytes, sizeof(bytes));
}
void Pack(Writer& w, const std::string& value) { w.String(value); }
void Pack(Writer& w, const RawValue& value) { value.is_nil() ? w.Nil() : w.Bytes(value.packed); }

// A call id; the notices -1 and -2 keep their sign.
void Pack(Writer& w, uint64_t value) {
  const auto wrapped = static_cast<int64_t>(value);
  wrapped == -1 || wrapped == -2 ? w.packer.pack_int64(wrapped) : w.packer.pack_uint64(value);
}

template <class T>
requires std::is_enum_v<T>
void Pack(Writer& w, T value) { w.packer.pack_int32(static_cast<int32_t>(value)); }

void Pack(Writer& w, const StopReason& value) {
  if (const auto* token_id = std::get_if<int64_t>(&value)) return Pack(w, *token_id);
  if (const auto* words = std::get_if<std::string>(&value)) return Pack(w, *words);
  w.Nil();
}

void PackArray(Writer& w, std::string_view dtype, std::initializer_list<int32_t> shape,
               std::string_view data) {
  w.packer.pack_array(3);
  w.String(dtype);
  w.packer.pack_array(static_cast<uint32_t>(shape.size()));
  for (const int32_t size : shape) Pack(w, size);
  if (data.size() < kInlineArrayBytes) {
    w.packer.pack_ext(data.size(), kExtRawView);
    w.packer.pack_ext_body(data.data(), static_cast<uint32_t>(data.size()));
  } else {
    w.message->aux.emplace_back(data);
    Pack(w, static_cast<int64_t>(w.message->aux.size()));
  }
}

template <class T>
std::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

void PackLogprobs(Writer& w, const LogprobsRows& rows, bool tensors) {
  const auto cells = static_cast<size_t>(rows.num_rows) * static_cast<size_t>(rows.num_columns);
  CHECK_EQ(rows.token_ids.size(), cells);
  CHECK_EQ(rows.logprobs.size(), cells);
  CHECK_EQ(rows.ranks.size(), static_cast<size_t>(rows.num_rows));
  w.packer.pack_array(tensors ? 5 : 4);
  PackArray(w, tensors ? "int32" : "<i4", {rows.num_rows, rows.num_columns},
            BytesOf(rows.token_ids));
  PackArray(w, tensors ? "float32" : "<f4", {rows.num_rows, rows.num_columns},
            BytesOf(rows.logprobs));
  PackArray(w, tensors ? "int64" : "<i8", {rows.num_rows}, BytesOf(rows.ranks));
  w.Nil();
  if (tensors) w.Nil();
}

template <class T>
void Pack(Writer& w, const std::optional<T>& value);
template <class T>
void Pack(Writer& w, const Rare<T>& value);
template <class A, class B>
void Pack(Writer& w, const std::vector<std::pair<A, B>>& map);
template <class T>
void Pack(Writer& w, const std::vector<T>& list);
template <ArrayRecord T>
void Pack(Writer& w, const T& record);
template <MapRecord T>
void Pack(Writer& w, const T& record);

template <class T>
void Pack(Writer& w, const std::optional<T>& value) {
  value ? Pack(w, *value) : w.Nil();
}
template <class T>
void Pack(Writer& w, const Rare<T>& value) {
  value ? Pack(w, *value) : w.Nil();
}
template <class A, class B>
void Pack(Writer& w, const std::vector<std::pair<A, B>>& map) {
  w.packer.pack_map(static_cast<uint32_t>(map.size()));
  for (const auto& [key, value] : map) {
    Pack(w, key);
    Pack(w, value);
  }
}
template <class T>
void Pack(Writer& w, const std::vector<T>& list) {
  w.packer.pack_array(static_cast<uint32_t>(list.size()));
  for (const T& value : list) Pack(w, value);
}

template <class T, class Value>
void PackAs(Writer& w, Form form, const T& record, const Value& value) {
  if constexpr (requires { value.empty(); }) {
    if (form == Form::kNilIfEmpty && value.empty()) return w.Nil();
  }
  if constexpr (std::is_same_v<Value, RawValue>) {
    if (form == Form::kArrayIfEmpty && value.is_nil()) return w.buffer.write(&kEmptyArray, 1);
    if (form == Form::kMapIfEmpty && value.is_nil()) return w.buffer.write(&kEmptyMap, 1);
  }
  if constexpr (std::is_same_v<Value, Rare<LogprobsRows>>) {
    if (!value) return w.Nil();
    return PackLogprobs(w, *value, form == Form::kTensors);
  } else if constexpr (std::is_same_v<T, UtilityOutput> && std::is_same_v<Value, RawValue>) {
    if (record.failure_message) return w.Nil();
    w.packer.pack_array(2);
    w.Nil();
    Pack(w, value);
  } else if constexpr (std::is_same_v<T, EngineCoreRequest> &&
                       std::is_same_v<Value, SamplingParams>) {
    record.pooling_params.is_nil() ? Pack(w, value) : w.Nil();
  } else {
    Pack(w, value);
  }
}

template <class T, auto kMember, Form kForm>
void PackElement(Writer& w, const T& record, At<kMember, kForm> /*element*/) {
  PackAs(w, kForm, record, record.*kMember);
}

template <ArrayRecord T>
void Pack(Writer& w, const T& record) {
  using Fields = typename ArrayOf<T>::Fields;
  w.packer.pack_array(std::tuple_size_v<Fields>);
  std::apply([&](auto... element) { (PackElement(w, record, element), ...); }, Fields());
}

template <class T, auto kMember, Sent kSent, Form kForm>
bool IsSent(const T& record, const T& defaults, Key<kMember, kSent, kForm> /*key*/) {
  return kSent == Sent::kAlways || !(record.*kMember == defaults.*kMember);
}

template <class T, auto kMember, Sent kSent, Form kForm>
void PackEntry(Writer& w, const T& record, Key<kMember, kSent, kForm> key) {
  w.String(key.name);
  PackAs(w, kForm, record, record.*kMember);
}

// msgspec sizes a map's header by the number of keys there could be, so a long record with few keys
// still gets the three-byte header.
void PackMapSize(Writer& w, uint32_t num_sent, size_t num_keys) {
  constexpr size_t kMaxOneByte = 15;
  if (num_keys <= kMaxOneByte) {
    w.packer.pack_map(num_sent);
    return;
  }
  const char header[3] = {'\xde', static_cast<char>(num_sent >> 8), static_cast<char>(num_sent)};
  w.buffer.write(header, sizeof(header));
}

template <MapRecord T>
void Pack(Writer& w, const T& record) {
  static const T defaults;
  std::apply(
      [&](auto... key) {
        PackMapSize(w, (uint32_t{0} + ... + uint32_t{IsSent(record, defaults, key)}),
                    sizeof...(key));
        ((IsSent(record, defaults, key) ? PackEntry(w, record, key) : void()), ...);
      },
      MapOf<T>::kKeys);
}

template <class T>
void EncodeRecord(const T& record, EncodedMessage* message) {
  Writer writer(message);
  Pack(writer, record);
}

// ---- Unpack: the same kinds of value ----

// A list of strings or records may be announced with one byte each and become much larger here.
constexpr uint32_t kMaxListElements = 1 << 20;

void Unpack(MsgpackReader& r, bool* value) { *value = r.Bool(); }
void Unpack(MsgpackReader& r, int32_t* value) {
  *value = static_cast<int32_t>(
      r.IntIn(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}
void Unpack(MsgpackReader& r, int64_t* value) { *value = r.Int(); }
void Unpack(MsgpackReader& r, uint64_t* value) { *value = r.BitsOfInt(); }
void Unpack(MsgpackReader& r, double* value) { *value = r.FiniteNumber(); }
void Unpack(MsgpackReader& r, std::string* value) { value->assign(r.String()); }
void Unpack(MsgpackReader& r, RawValue* value) {
  r.TryNil() ? value->packed.clear() : void(value->packed.assign(r.Raw()));
}
void Unpack(MsgpackReader& r, OutputKind* value) {
  *value = static_cast<OutputKind>(r.IntIn(0, 2));
}
void Unpack(MsgpackReader& r, FinishReason* value) {
  *value =
      static_cast<FinishReason>(r.IntIn(0, static_cast<int64_t>(kFinishReasonNames.size()) - 1));
}
void Unpack(MsgpackReader& r, EventType* value) { *value = static_cast<EventType>(r.IntIn(1, 3)); }
void Unpack(MsgpackReader& r, StopReason* value) {
  if (r.TryNil()) {
    *value = std::monostate();
  } else if (r.NextIsString()) {
    *value = std::string(r.String());
  } else {
    *value = r.Int();
  }
}

void UnpackTokenIds(MsgpackReader& r, std::vector<TokenId>* ids) {
  const uint32_t size = r.ArraySize();
  ids->clear();
  ids->reserve(size);
  for (uint32_t i = 0; i < size && r.ok(); ++i) {
    ids->push_back(static_cast<TokenId>(r.IntIn(0, std::numeric_limits<TokenId>::max())));
  }
}

// One [dtype, shape, data]. dtype keeps the letter and size ("i4") of either spelling.
struct ArrayView {
  std::string_view dtype;
  std::vector<int64_t> shape;
  std::string_view data;
};

std::string_view NormalizedDtype(std::string_view dtype) {
  if (dtype == "<i4" || dtype == "int32") return "i4";
  if (dtype == "<i8" || dtype == "int64") return "i8";
  if (dtype == "<f4" || dtype == "float32") return "f4";
  if (dtype == "<f8" || dtype == "float64") return "f8";
  return "";
}

ArrayView UnpackArray(MsgpackReader& r) {
  ArrayView view;
  if (r.ArraySize() != 3) r.Fail("expected [dtype, shape, data]");
  view.dtype = NormalizedDtype(r.String());
  if (view.dtype.empty()) r.Fail("expected a 32 or 64 bit little-endian array");
  const uint32_t dimensions = r.ArraySize();
  if (dimensions > 3) r.Fail("expected an array of few dimensions");
  for (uint32_t i = 0; i < dimensions && r.ok(); ++i) view.shape.push_back(r.IntIn(0, 1 << 30));
  if (r.NextIsInt()) {
    const int64_t index = r.Int();
    if (index < 1 || index > static_cast<int64_t>(r.aux_frames().size())) {
      r.Fail("array data points at a frame that is not there");
    } else {
      view.data = r.aux_frames()[static_cast<size_t>(index - 1)];
    }
  } else {
    int8_t type = kExtRawView;
    view.data = r.Ext(&type);
    if (type != kExtRawView) r.Fail("expected Ext type 3");
  }
  return view;
}

template <class From, class To>
void CopyElements(std::string_view data, std::vector<To>* to) {
  to->resize(data.size() / sizeof(From));
  for (size_t i = 0; i < to->size(); ++i) {
    From value;
    std::memcpy(&value, data.data() + i * sizeof(From), sizeof(From));
    (*to)[i] = static_cast<To>(value);
  }
}

// The elements of a [rows, columns] array (columns 1 may be left out), as To.
template <class To>
void UnpackCells(MsgpackReader& r, int32_t rows, int32_t columns, std::vector<To>* cells) {
  const ArrayView view = UnpackArray(r);
  if (!r.ok()) return;
  const bool is_flat = view.shape.size() == 1 && columns == 1 && view.shape[0] == rows;
  const bool is_table = view.shape.size() == 2 && view.shape[0] == rows && view.shape[1] == columns;
  const bool is_float = view.dtype[0] == 'f';
  const size_t width = view.dtype[1] == '4' ? 4 : 8;
  const auto count = static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns);
  if (!(is_flat || is_table) || is_float != std::is_floating_point_v<To> ||
      view.data.size() != count * width) {
    return r.Fail("array of an unexpected shape or type");
  }
  if (is_float) {
    width == 4 ? CopyElements<float>(view.data, cells) : CopyElements<double>(view.data, cells);
  } else {
    width == 4 ? CopyElements<int32_t>(view.data, cells) : CopyElements<int64_t>(view.data, cells);
  }
}

void Unpack(MsgpackReader& r, LogprobsRows* rows) {
  const uint32_t size = r.ArraySize();
  if (size < 3) return r.Fail("expected token ids, logprobs and ranks");
  // The shape is wanted before the elements: look ahead with a copy of the cursor.
  MsgpackReader ahead = r;
  const ArrayView ids = UnpackArray(ahead);
  if (!ahead.ok()) {
    r = ahead;
    return;
  }
  if (ids.shape.size() != 2 || ids.shape[0] * std::max<int64_t>(1, ids.shape[1]) > (1 << 30)) {
    return r.Fail("array of an unexpected shape or type");
  }
  rows->num_rows = static_cast<int32_t>(ids.shape[0]);
  rows->num_columns = static_cast<int32_t>(ids.shape[1]);
  UnpackCells(r, rows->num_rows, rows->num_columns, &rows->token_ids);
  UnpackCells(r, rows->num_rows, rows->num_columns, &rows->logprobs);
  UnpackCells(r, rows->num_rows, 1, &rows->ranks);
  for (uint32_t i = 3; i < size && r.ok(); ++i) r.Skip();
}

template <class T>
void Unpack(MsgpackReader& r, std::optional<T>* value);
template <class T>
void Unpack(MsgpackReader& r, Rare<T>* value);
template <class A, class B>
void Unpack(MsgpackReader& r, std::vector<std::pair<A, B>>* map);
template <class T>
void Unpack(MsgpackReader& r, std::vector<T>* list);
template <ArrayRecord T>
void Unpack(MsgpackReader& r, T* record);
template <MapRecord T>
void Unpack(MsgpackReader& r, T* record);

template <class T>
void Unpack(MsgpackReader& r, std::optional<T>* value) {
  r.TryNil() ? value->reset() : Unpack(r, &value->emplace());
}
template <class T>
void Unpack(MsgpackReader& r, Rare<T>* value) {
  r.TryNil() ? value->reset() : Unpack(r, &value->emplace());
}
template <class A, class B>
void Unpack(MsgpackReader& r, std::vector<std::pair<A, B>>* map) {
  map->clear();
  const uint32_t size = r.MapSize();
  for (uint32_t i = 0; i < size && r.ok(); ++i) {
    auto& [key, value] = map->emplace_back();
    Unpack(r, &key);
    Unpack(r, &value);
  }
}
template <class T>
void Unpack(MsgpackReader& r, std::vector<T>* list) {
  if constexpr (std::is_same_v<T, TokenId>) {
    UnpackTokenIds(r, list);
  } else {
    const uint32_t size = r.ArraySize();
    if (size > kMaxListElements) return r.Fail("too many elements");
    if (list->size() > size) list->resize(size);
    for (uint32_t i = 0; i < size && r.ok(); ++i) {
      if (i == list->size()) list->emplace_back();  // grows with what is really there
      Unpack(r, &(*list)[i]);
    }
  }
}

template <class T, class Value>
void UnpackAs(MsgpackReader& r, Form form, Value* value) {
  // nil stands for the default wherever a value has no nil of its own.
  if (r.TryNil()) {
    if constexpr (requires { value->clear(); }) {
      value->clear();
    } else {
      *value = Value();
    }
    return;
  }
  if (form == Form::kUtilityResult) {
    if constexpr (std::is_same_v<Value, RawValue>) {
      if (r.ArraySize() != 2) r.Fail("expected [type, value]");
      r.Skip();
      Unpack(r, value);
    }
    return;
  }
  Unpack(r, value);
}

template <class T, auto kMember, Form kForm>
void UnpackElement(MsgpackReader& r, T* record, At<kMember, kForm> /*element*/) {
  UnpackAs<T>(r, kForm, &(record->*kMember));
}

void Clear(EngineCoreOutput* record) { record->Clear(); }
template <class T>
void Clear(T* record) {
  *record = T();
}
void Clear(EngineCoreOutputs* /*record*/) {}  // element by element, to keep the room of outputs

template <ArrayRecord T>
void Unpack(MsgpackReader& r, T* record) {
  using Fields = typename ArrayOf<T>::Fields;
  uint32_t left = r.ArraySize();
  if (left < ArrayOf<T>::kRequired) return r.Fail("the array is too short");
  Clear(record);
  std::apply(
      [&](auto... element) {
        ((left > 0 && r.ok() ? (--left, UnpackElement(r, record, element)) : void()), ...);
      },
      Fields());
  while (left-- > 0 && r.ok()) r.Skip();
}

template <class T, auto kMember, Sent kSent, Form kForm>
bool UnpackEntry(MsgpackReader& r, std::string_view name, T* record,
                 Key<kMember, kSent, kForm> key) {
  if (name != key.name) return false;
  if (r.TryNil()) {
    record->*kMember = T().*kMember;
  } else {
    UnpackAs<T>(r, kForm, &(record->*kMember));
  }
  return true;
}

template <MapRecord T>
void Unpack(MsgpackReader& r, T* record) {
  *record = T();
  const uint32_t size = r.MapSize();
  for (uint32_t i = 0; i < size && r.ok(); ++i) {
    const std::string_view name = r.String();
    if (!r.ok()) return;
    const bool known = std::apply(
        [&](auto... key) { return (UnpackEntry(r, name, record, key) || ...); }, MapOf<T>::kKeys);
    if (!known) r.Skip();
  }
}

template <class T>
Status DecodeRecord(Frames frames, T* record) {
  if (frames.empty()) return InvalidArgumentError("a message without frames");
  MsgpackReader reader(frames[0], frames.subspan(1));
  Unpack(reader, record);
  if (reader.ok() && !reader.at_end()) reader.Fail("bytes after the message");
  return reader.status();
}

StatusOr<EngineInput> DecodeAdd(Frames frames) {
  EngineCoreRequest request;
  RETURN_IF_ERROR(DecodeRecord(frames, &request));
  if (request.request_id.empty()) return InvalidArgumentError("a request without an id");
  for (const std::string_view frame : frames.subspan(1)) request.aux_frames.emplace_back(frame);
  return EngineInput(std::move(request));
}

template <class T>
StatusOr<EngineInput> DecodeAs(Frames frames) {
  T record;
  RETURN_IF_ERROR(DecodeRecord(frames, &record));
  return EngineInput(std::move(record));
}

template <class F>
RawValue PackedBy(F pack) {
  EncodedMessage message;
  {
    Writer writer(&message);
    pack(writer);
  }
  return RawValue{std::move(message.body)};
}

}  // namespace

void Encode(const EngineCoreRequest& record, EncodedMessage* message) {
  EncodeRecord(record, message);
  message->aux = record.aux_frames;
}
void Encode(const AbortRequest& record, EncodedMessage* message) { EncodeRecord(record, message); }
void Encode(const StartDpWave& record, EncodedMessage* message) { EncodeRecord(record, message); }
void Encode(const UtilityRequest& record, EncodedMessage* message) {
  EncodeRecord(record, message);
}
void Encode(const EngineCoreOutputs& record, EncodedMessage* message) {
  CHECK(!record.is_empty()) << "an empty message means death to some readers";
  EncodeRecord(record, message);
}
void Encode(const EngineStatus& record, EncodedMessage* message) { EncodeRecord(record, message); }
void Encode(const InitMessage& record, EncodedMessage* message) { EncodeRecord(record, message); }
void Encode(const EngineCoreReadyResponse& record, EncodedMessage* message) {
  EncodeRecord(record, message);
}

StatusOr<EngineInput> DecodeInput(uint8_t type, Frames frames) {
  switch (static_cast<RequestType>(type)) {
    case RequestType::kAdd:
      return DecodeAdd(frames);
    case RequestType::kAbort:
      return DecodeAs<AbortRequest>(frames);
    case RequestType::kStartDpWave:
      return DecodeAs<StartDpWave>(frames);
    case RequestType::kUtility:
      return DecodeAs<UtilityRequest>(frames);
  }
  return InvalidArgumentError("request type " + std::to_string(type) + " is unknown");
}

Status Decode(Frames frames, EngineCoreOutputs* record) {
  // Fields that a short array leaves out must not keep the last message's values.
  record->engine_index = 0;
  record->timestamp = 0;
  record->scheduler_stats.reset();
  record->utility_output.reset();
  record->finished_requests.clear();
  record->wave_complete.reset();
  record->start_wave.reset();
  record->weight_version.reset();
  if (frames.empty()) return InvalidArgumentError("a message without frames");
  MsgpackReader peek(frames[0]);
  if (peek.ArraySize() < 2) record->outputs.clear();
  return DecodeRecord(frames, record);
}
Status Decode(Frames frames, EngineStatus* record) { return DecodeRecord(frames, record); }
Status Decode(Frames frames, InitMessage* record) { return DecodeRecord(frames, record); }
Status Decode(Frames frames, EngineCoreReadyResponse* record) {
  return DecodeRecord(frames, record);
}

std::optional<Sender> FindSender(std::string_view add_body) {
  constexpr uint32_t kClientIndex = 11;
  MsgpackReader reader(add_body);
  const uint32_t size = reader.ArraySize();
  if (size == 0) return std::nullopt;
  Sender sender;
  sender.request_id = std::string(reader.String());
  if (!reader.ok() || sender.request_id.empty()) return std::nullopt;
  for (uint32_t i = 1; i < std::min(size, kClientIndex); ++i) reader.Skip();
  if (size > kClientIndex) Unpack(reader, &sender.client_index);
  if (!reader.ok()) return std::nullopt;
  return sender;
}

RawValue PackedBool(bool value) {
  return PackedBy([&](Writer& w) { Pack(w, value); });
}
RawValue PackedInt(int64_t value) {
  return PackedBy([&](Writer& w) { Pack(w, value); });
}
RawValue PackedString(std::string_view value) {
  return PackedBy([&](Writer& w) { w.String(value); });
}
RawValue PackedStrings(const std::vector<std::string>& values) {
  return PackedBy([&](Writer& w) { Pack(w, values); });
}
RawValue PackedArray(const std::vector<RawValue>& values) {
  return PackedBy([&](Writer& w) { Pack(w, values); });
}

}  // namespace tandem::wire
