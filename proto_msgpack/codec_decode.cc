#include <cstring>
#include <limits>
#include <type_traits>

#include "proto_msgpack/codec.h"
#include "proto_msgpack/codec_tensor.h"
#include "proto_msgpack/fields.h"
#include "proto_msgpack/msgpack_reader.h"
#include "proto_msgpack/prefix_cache_stats.h"
#include "proto_msgpack/token_ids.h"

namespace tandem::wire {
namespace {

// ---- Unpack: one overload per kind of value ----

// An element of a list takes at least one byte in the message but may be much larger in memory.
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

std::string_view NormalizedDtype(std::string_view dtype) {
  if (dtype == "<i4" || dtype == "int32") return "i4";
  if (dtype == "<i8" || dtype == "int64") return "i8";
  if (dtype == "<f4" || dtype == "float32") return "f4";
  if (dtype == "<f8" || dtype == "float64") return "f8";
  return "";
}

// dtype keeps the letter and size ("i4") of either spelling.
TensorView UnpackArray(MsgpackReader& r) {
  TensorView view = UnpackTensor(r);
  view.dtype = NormalizedDtype(view.dtype);
  if (view.dtype.empty()) r.Fail("expected a 32 or 64 bit little-endian array");
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
  const TensorView view = UnpackArray(r);
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
  // The shape is needed before the elements: look ahead with a copy of the cursor.
  MsgpackReader ahead = r;
  const TensorView ids = UnpackArray(ahead);
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
      if (i == list->size()) list->emplace_back();  // grows with the elements that exist
      Unpack(r, &(*list)[i]);
    }
  }
}

template <class T, class Value>
void UnpackAs(MsgpackReader& r, Form form, Value* value) {
  // nil means the default where a value has no nil of its own.
  if (r.TryNil()) {
    if constexpr (requires { value->clear(); }) {
      value->clear();
    } else {
      *value = Value();
    }
    return;
  }
  if constexpr (std::is_same_v<Value, Rare<RawValue>>) {
    if (form == Form::kTensor) {
      const TensorView tensor = UnpackTensor(r);
      if (r.ok()) *value = PackedTensor(tensor);
      return;
    }
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
void Clear(EngineCoreOutputs* /*record*/) {}  // by element, to keep the capacity of outputs

// Past an element after the known ones: Tandem's own fields are read, anything else is skipped.
template <class T>
void UnpackTail(MsgpackReader& r, T* record) {
  if constexpr (HasTail<T>) {
    MsgpackReader ahead = r;
    if (ahead.NextIsMap() && ahead.MapSize() == 1 && ahead.NextIsString() &&
        ahead.String() == kTailKey) {
      r = ahead;
      return Unpack(r, &(record->*TailOf<T>::kMember));
    }
  }
  r.Skip();
}

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
  while (left-- > 0 && r.ok()) UnpackTail(r, record);
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

}  // namespace

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
  // Fields that a short array leaves out must not keep the previous message's values.
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

TensorView UnpackTensor(MsgpackReader& r, uint32_t max_dimensions) {
  TensorView view;
  if (r.ArraySize() != 3) r.Fail("expected [dtype, shape, data]");
  view.dtype = r.String();
  const uint32_t dimensions = r.ArraySize();
  if (dimensions > max_dimensions) r.Fail("expected an array of few dimensions");
  for (uint32_t i = 0; i < dimensions && r.ok(); ++i) {
    view.shape.push_back(r.IntIn(0, kMaxArraySize));
  }
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

StatusOr<TensorView> DecodeTensor(const RawValue& value, std::span<const std::string> aux_frames) {
  const std::vector<std::string_view> frames(aux_frames.begin(), aux_frames.end());
  MsgpackReader reader(value.packed, frames);
  TensorView view = UnpackTensor(reader);
  if (reader.ok() && !reader.at_end()) reader.Fail("bytes after the tensor");
  RETURN_IF_ERROR(reader.status());
  return view;
}

StatusOr<std::vector<bool>> UnpackBools(const RawValue& value) {
  MsgpackReader reader(value.packed);
  std::vector<bool> values;
  for (uint32_t left = reader.ArraySize(); left > 0 && reader.ok(); --left) {
    bool is_true = false;
    Unpack(reader, &is_true);
    values.push_back(is_true);
  }
  if (reader.ok() && !reader.at_end()) reader.Fail("bytes after the list");
  RETURN_IF_ERROR(reader.status());
  return values;
}

StatusOr<std::vector<TokenId>> UnpackTokenIds(const RawValue& value) {
  MsgpackReader reader(value.packed);
  std::vector<TokenId> ids;
  UnpackTokenIds(reader, &ids);
  if (reader.ok() && !reader.at_end()) reader.Fail("bytes after the list");
  RETURN_IF_ERROR(reader.status());
  return ids;
}

StatusOr<RequestSpecDecodeMetrics> UnpackSpecDecodeMetrics(const RawValue& value) {
  RequestSpecDecodeMetrics metrics;
  const std::string_view frames[] = {value.packed};
  RETURN_IF_ERROR(DecodeRecord(frames, &metrics));
  return metrics;
}

StatusOr<PrefixCacheStats> UnpackPrefixCacheStats(const RawValue& value) {
  PrefixCacheStats stats;
  const std::string_view frames[] = {value.packed};
  RETURN_IF_ERROR(DecodeRecord(frames, &stats));
  return stats;
}

StatusOr<LoraRequest> UnpackLoraRequest(const RawValue& value) {
  LoraRequest lora;
  const std::string_view frames[] = {value.packed};
  RETURN_IF_ERROR(DecodeRecord(frames, &lora));
  return lora;
}

StatusOr<std::optional<int64_t>> SecondBegin(const PoolingParams& params) {
  std::optional<int64_t> begin;
  if (params.extra_kwargs.is_nil()) return begin;
  MsgpackReader reader(params.extra_kwargs.packed);
  const uint32_t size = reader.MapSize();
  for (uint32_t i = 0; i < size && reader.ok(); ++i) {
    if (reader.String() != kTokenTypesKey) {
      return UnimplementedError("extra_kwargs of pooling_params has an unknown key");
    }
    begin = reader.IntIn(0, 1 << 30);
  }
  RETURN_IF_ERROR(reader.status());
  return begin;
}

StatusOr<PoolingParams> UnpackPoolingParams(const RawValue& value) {
  PoolingParams params;
  const std::string_view frames[] = {value.packed};
  RETURN_IF_ERROR(DecodeRecord(frames, &params));
  return params;
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

}  // namespace tandem::wire
