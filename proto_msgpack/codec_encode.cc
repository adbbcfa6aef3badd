#include <array>
#include <bit>
#include <cstring>
#include <msgpack.hpp>
#include <type_traits>

#include "common/check.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/codec_tensor.h"
#include "proto_msgpack/codec_writer.h"
#include "proto_msgpack/fields.h"
#include "proto_msgpack/prefix_cache_stats.h"
#include "proto_msgpack/token_ids.h"

namespace tandem::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are sent as they lie in memory");

// ---- Bytes out ----

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
void Pack(Writer& w, double value) {
  const std::array<char, 9> bytes = Float64Bytes(value);
  w.buffer.write(bytes.data(), bytes.size());
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

template <class T>
bool SendsTail(const T& record) {
  if constexpr (HasTail<T>) {
    const auto& own = record.*TailOf<T>::kMember;
    return !(own == std::remove_cvref_t<decltype(own)>());
  }
  return false;
}

template <ArrayRecord T>
void Pack(Writer& w, const T& record) {
  using Fields = typename ArrayOf<T>::Fields;
  const bool sends_tail = SendsTail(record);
  w.packer.pack_array(std::tuple_size_v<Fields> + (sends_tail ? 1 : 0));
  std::apply([&](auto... element) { (PackElement(w, record, element), ...); }, Fields());
  if constexpr (HasTail<T>) {
    if (!sends_tail) return;
    w.packer.pack_map(1);
    w.String(kTailKey);
    Pack(w, record.*TailOf<T>::kMember);
  }
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

void Encode(const EngineCoreRequest& record, EncodedMessage* message, Peer peer) {
  CHECK(peer == Peer::kTandem || !SendsTail(record))
      << record.request_id << " has fields that a foreign engine does not know";
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

RawValue PackedTensor(const TensorView& tensor) {
  return PackedBy([&](Writer& w) {
    w.packer.pack_array(3);
    w.String(tensor.dtype);
    w.packer.pack_array(static_cast<uint32_t>(tensor.shape.size()));
    for (const int64_t size : tensor.shape) Pack(w, size);
    w.packer.pack_ext(tensor.data.size(), kExtRawView);
    w.packer.pack_ext_body(tensor.data.data(), static_cast<uint32_t>(tensor.data.size()));
  });
}

RawValue EncodeTensor(const TensorView& tensor, std::vector<std::string>* aux_frames) {
  aux_frames->emplace_back(tensor.data);
  return PackedBy([&](Writer& w) {
    w.packer.pack_array(3);
    w.String(tensor.dtype);
    w.packer.pack_array(static_cast<uint32_t>(tensor.shape.size()));
    for (const int64_t size : tensor.shape) Pack(w, size);
    Pack(w, static_cast<int64_t>(aux_frames->size()));
  });
}

RawValue PackedTokenIds(std::span<const TokenId> ids) {
  return PackedBy([&](Writer& w) {
    w.packer.pack_array(static_cast<uint32_t>(ids.size()));
    for (const TokenId id : ids) Pack(w, id);
  });
}

RawValue Packed(const RequestSpecDecodeMetrics& metrics) {
  return PackedBy([&](Writer& w) { Pack(w, metrics); });
}

RawValue Packed(const PrefixCacheStats& stats) {
  return PackedBy([&](Writer& w) { Pack(w, stats); });
}

RawValue Packed(const LoraRequest& lora) {
  return PackedBy([&](Writer& w) { Pack(w, lora); });
}

RawValue PackedTokenTypes(int64_t second_begin) {
  return PackedBy([&](Writer& w) {
    w.packer.pack_map(1);
    w.String(kTokenTypesKey);
    Pack(w, second_begin);
  });
}

RawValue Packed(const PoolingParams& params) {
  return PackedBy([&](Writer& w) { Pack(w, params); });
}

RawValue PackedBool(bool value) {
  return PackedBy([&](Writer& w) { Pack(w, value); });
}
RawValue PackedBools(const std::vector<bool>& values) {
  return PackedBy([&](Writer& w) {
    w.packer.pack_array(static_cast<uint32_t>(values.size()));
    for (const bool value : values) Pack(w, value);
  });
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
RawValue PackedMap(const PackedEntries& entries) {
  return PackedBy([&](Writer& w) {
    w.packer.pack_map(static_cast<uint32_t>(entries.size()));
    for (const auto& [key, value] : entries) {
      w.String(key);
      Pack(w, value);
    }
  });
}

}  // namespace tandem::wire
