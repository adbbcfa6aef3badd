#include "proto_msgpack/multimodal.h"

#include <limits>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "proto_msgpack/codec_tensor.h"
#include "proto_msgpack/msgpack_reader.h"

namespace tandem::wire {
namespace {

// 0: torch has no such type, or we do not take it.
size_t BytesOf(std::string_view dtype) {
  if (dtype == "float64" || dtype == "int64") return 8;
  if (dtype == "float32" || dtype == "int32") return 4;
  if (dtype == "float16" || dtype == "bfloat16") return 2;
  if (dtype == "bool" || dtype == "uint8" || dtype == "int8") return 1;
  return 0;
}

// Sizes come from strangers: their product is not made beyond the bytes that are there.
bool HasBytesOfShape(const TensorView& tensor) {
  uint64_t num_bytes = BytesOf(tensor.dtype);
  bool is_empty = false;
  for (const int64_t size : tensor.shape) is_empty = is_empty || size == 0;
  if (is_empty) return num_bytes > 0 && tensor.data.empty();
  for (const int64_t size : tensor.shape) {
    if (num_bytes > tensor.data.size() / static_cast<uint64_t>(size)) return false;
    num_bytes *= static_cast<uint64_t>(size);
  }
  return num_bytes > 0 && num_bytes == tensor.data.size();
}

// ---- to the wire ----

RawValue Packed(const TensorView& tensor, std::vector<std::string>* aux_frames) {
  CHECK(HasBytesOfShape(tensor)) << tensor.dtype << " of " << tensor.data.size() << " bytes";
  const bool is_inline = tensor.shape.empty() || tensor.data.size() < kInlineArrayBytes;
  return is_inline ? PackedTensor(tensor) : EncodeTensor(tensor, aux_frames);
}

RawValue Packed(const MultiModalFeature::Item& item, std::vector<std::string>* aux_frames) {
  return PackedMap({{"data", Packed(item.tensor, aux_frames)},
                    {"field", PackedArray({PackedString(item.factory), item.kwargs})}});
}

RawValue PackedMask(const std::vector<bool>& is_embed, std::vector<std::string>* aux_frames) {
  if (is_embed.empty()) return {};
  std::string bytes;
  bytes.reserve(is_embed.size());
  for (const bool is_set : is_embed) bytes.push_back(is_set ? '\x01' : '\x00');
  return Packed(TensorView{"bool", {static_cast<int64_t>(bytes.size())}, bytes}, aux_frames);
}

RawValue Packed(const MultiModalFeature& feature, std::vector<std::string>* aux_frames) {
  RawValue data;
  if (feature.data) {
    PackedEntries items;
    for (const auto& item : *feature.data) items.emplace_back(item.key, Packed(item, aux_frames));
    data = PackedMap(items);
  }
  return PackedMap(
      {{"data", std::move(data)},
       {"modality", PackedString(feature.modality)},
       {"identifier", PackedString(feature.identifier)},
       {"mm_position", PackedMap({{"offset", PackedInt(feature.offset)},
                                  {"length", PackedInt(feature.length)},
                                  {"is_embed", PackedMask(feature.is_embed, aux_frames)}})},
       {"mm_hash", feature.mm_hash ? PackedString(*feature.mm_hash) : RawValue()}});
}

// ---- from the wire ----

// Calls read(key) for each entry; what it leaves is skipped.
template <class Read>
void ReadMap(MsgpackReader& r, Read read) {
  for (uint32_t left = r.MapSize(); left > 0 && r.ok(); --left) {
    const std::string_view key = r.String();
    if (r.ok() && !read(key)) r.Skip();
  }
}

TensorView ReadTensor(MsgpackReader& r) {
  constexpr uint32_t kMaxDimensions = 4;
  TensorView tensor = UnpackTensor(r, kMaxDimensions);
  if (r.ok() && !HasBytesOfShape(tensor)) r.Fail("a tensor's bytes contradict its shape or type");
  return tensor;
}

void ReadMask(MsgpackReader& r, std::vector<bool>* is_embed) {
  if (r.TryNil()) return;
  const TensorView mask = ReadTensor(r);
  if (mask.dtype != "bool" || mask.shape.size() != 1) r.Fail("is_embed must be a list of bool");
  if (!r.ok()) return;
  is_embed->reserve(mask.data.size());
  for (const char byte : mask.data) is_embed->push_back(byte != 0);
}

void ReadPosition(MsgpackReader& r, MultiModalFeature* feature) {
  const auto position = [&](int64_t least) {
    return static_cast<int32_t>(r.IntIn(least, std::numeric_limits<int32_t>::max()));
  };
  ReadMap(r, [&](std::string_view key) {
    if (key == "offset") {
      feature->offset = position(0);
    } else if (key == "length") {
      feature->length = position(1);
    } else if (key == "is_embed") {
      ReadMask(r, &feature->is_embed);
    } else {
      return false;
    }
    return true;
  });
}

void ReadItem(MsgpackReader& r, MultiModalFeature::Item* item) {
  bool has_data = false;
  ReadMap(r, [&](std::string_view key) {
    if (key == "data") {
      item->tensor = ReadTensor(r);
      has_data = true;
    } else if (key == "field") {
      if (r.ArraySize() != 2) r.Fail("expected [factory, kwargs]");
      item->factory = r.String();
      r.TryNil() ? item->kwargs.packed.clear() : void(item->kwargs.packed.assign(r.Raw()));
    } else {
      return false;
    }
    return true;
  });
  if (!has_data) r.Fail("an item without data");
}

void ReadData(MsgpackReader& r, MultiModalFeature* feature) {
  if (r.TryNil()) return;
  constexpr size_t kMaxItems = 64;  // models take two or three
  auto& items = feature->data.emplace();
  ReadMap(r, [&](std::string_view key) {
    if (items.size() == kMaxItems) r.Fail("too many tensors of one item");
    auto& item = items.emplace_back();
    item.key = key;
    ReadItem(r, &item);
    return true;
  });
}

void ReadFeature(MsgpackReader& r, MultiModalFeature* feature) {
  feature->modality.clear();
  ReadMap(r, [&](std::string_view key) {
    if (key == "data") {
      ReadData(r, feature);
    } else if (key == "modality") {
      feature->modality = r.String();
    } else if (key == "identifier") {
      feature->identifier = r.String();
    } else if (key == "mm_position") {
      ReadPosition(r, feature);
    } else if (key == "mm_hash") {
      if (!r.TryNil()) feature->mm_hash = r.String();
    } else {
      return false;
    }
    return true;
  });
  if (feature->modality.empty() || feature->identifier.empty() || feature->length == 0) {
    r.Fail("a multimodal item without modality, identifier or position");
  }
  if (!feature->is_embed.empty() &&
      feature->is_embed.size() != static_cast<size_t>(feature->length)) {
    r.Fail("is_embed must have an entry for each position");
  }
}

}  // namespace

RawValue BatchedKwargs(bool keep_on_cpu) {
  return PackedMap({{"keep_on_cpu", PackedBool(keep_on_cpu)}});
}

RawValue FlatKwargs(int64_t num_rows) {
  const RawValue slice = PackedArray({PackedInt(0), PackedInt(num_rows), {}});
  // A list of items, each of which has a list of slices, one for each dimension up to `dim`.
  return PackedMap({{"keep_on_cpu", PackedBool(false)},
                    {"slices", PackedArray({PackedArray({slice})})},
                    {"dim", PackedInt(0)}});
}

void EncodeFeatures(const std::vector<MultiModalFeature>& features, EngineCoreRequest* request) {
  std::vector<RawValue> packed;
  packed.reserve(features.size());
  for (const auto& feature : features) packed.push_back(Packed(feature, &request->aux_frames));
  request->mm_features = features.empty() ? RawValue() : PackedArray(packed);
}

StatusOr<std::vector<MultiModalFeature>> DecodeFeatures(const EngineCoreRequest& request) {
  std::vector<MultiModalFeature> features;
  if (request.mm_features.is_nil()) return features;
  const std::vector<std::string_view> frames(request.aux_frames.begin(), request.aux_frames.end());
  MsgpackReader reader(request.mm_features.packed, frames);
  if (reader.TryNil()) return features;
  for (uint32_t left = reader.ArraySize(); left > 0 && reader.ok(); --left) {
    ReadFeature(reader, &features.emplace_back());
  }
  if (reader.ok() && !reader.at_end()) reader.Fail("bytes after the multimodal items");
  if (!reader.ok()) return InvalidArgumentError("mm_features: " + reader.status().message());
  return features;
}

}  // namespace tandem::wire
