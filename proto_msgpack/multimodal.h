#pragma once

// The images of a request on the wire (EngineCoreRequest::mm_features): vLLM 0.33's
// MultiModalFeatureSpec, one for each item, in the order of their places in the prompt.
// What the model takes of an image travels with it: pixel_values [patches, columns] and
// image_grid_thw [3] of Qwen's models, pixel_values [images, 3, height, width] and num_patches []
// of Gemma 3.
// Thread: pure functions. Tensors are views of what the caller owns (Encode) or of the request
// (Decode), which must then outlive the features unchanged.
// Failure: wrong, random or truncated bytes are INVALID_ARGUMENT, never a crash, and take no more
// memory than a small multiple of the message.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/schema.h"

namespace tandem::wire {

// Of an error: the engine lacks images that came without data. The frontend sends them again.
constexpr std::string_view kErrorMultimodalCacheMiss = "multimodal_cache_miss";

struct MultiModalFeature {
  // One of the tensors that the model takes.
  struct Item {
    std::string key;
    TensorView tensor;  // of up to 4 dimensions; "bool", "float32", "int64" … as torch calls them
    std::string factory;  // how vLLM batches it: "batched", "flat" or "shared"
    RawValue kwargs;      // map, of the factory

    friend bool operator==(const Item& a, const Item& b) {
      return a.key == b.key && a.tensor.dtype == b.tensor.dtype &&
             a.tensor.shape == b.tensor.shape && a.tensor.data == b.tensor.data &&
             a.factory == b.factory && a.kwargs == b.kwargs;
    }
  };

  std::string modality = "image";
  std::string identifier;              // of its content, in prefix blocks and the encoder cache
  std::optional<std::string> mm_hash;  // the same before an adapter's name is added
  // Positions [offset, offset + length) of the prompt stand for it.
  int32_t offset = 0;
  int32_t length = 0;
  std::vector<bool> is_embed;             // which of them the encoder's rows replace; empty: all
  std::optional<std::vector<Item>> data;  // nullopt: the engine is thought to have it already

  friend bool operator==(const MultiModalFeature&, const MultiModalFeature&) = default;
};

// The kwargs of an item that is an element of its batch ("batched").
RawValue BatchedKwargs(bool keep_on_cpu);
// The kwargs of an item that is the first num_rows rows of its batch ("flat").
RawValue FlatKwargs(int64_t num_rows);

// Sets the request's mm_features; tensors of 256 bytes and more are copied into its aux_frames.
// REQUIRES: the tensors' data have the bytes that their shapes say.
void EncodeFeatures(const std::vector<MultiModalFeature>& features, EngineCoreRequest* request);

// Empty: the request has none. Each range has a place for each entry of is_embed, and each tensor
// the bytes that its shape says; that ranges lie in the prompt is not checked.
StatusOr<std::vector<MultiModalFeature>> DecodeFeatures(const EngineCoreRequest& request);

}  // namespace tandem::wire
