#pragma once

// What a pooling request asks for (EngineCoreRequest::pooling_params): vLLM 0.33's PoolingParams.
// Thread: values and pure functions. Failure: malformed bytes are INVALID_ARGUMENT.

#include <cstdint>
#include <optional>
#include <string>

#include "common/status.h"
#include "proto_msgpack/schema.h"

namespace tandem::wire {

struct PoolingParams {                              // array of 11
  std::optional<bool> use_activation = {};          // 0: nil: as the model's files say
  std::optional<int64_t> dimensions = {};           // 1: of an embedding; nil: all
  RawValue step_tag_id = {};                        // 2
  RawValue returned_token_ids = {};                 // 3
  std::optional<std::string> task = {};             // 4: "embed", "classify", "token_embed" …
  bool requires_token_ids = false;                  // 5
  std::optional<bool> skip_reading_prefix_cache;    // 6
  RawValue late_interaction_params = {};            // 7
  RawValue extra_kwargs = {};                       // 8: map
  OutputKind output_kind = OutputKind::kFinalOnly;  // 9
  RawValue late_chunking_params = {};               // 10

  friend bool operator==(const PoolingParams&, const PoolingParams&) = default;
};

// extra_kwargs of a pair of texts: where the second one begins, for models with token types.
RawValue PackedTokenTypes(int64_t second_begin);
// nullopt: there is one text. Failure: extra_kwargs has other keys.
StatusOr<std::optional<int64_t>> SecondBegin(const PoolingParams& params);

RawValue Packed(const PoolingParams& params);
StatusOr<PoolingParams> UnpackPoolingParams(const RawValue& value);

}  // namespace tandem::wire
