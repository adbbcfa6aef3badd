#pragma once

// The adapter of a request (EngineCoreRequest::lora_request), and the argument of the utility call
// add_lora: vLLM 0.33's LoRARequest.
// Thread: values and pure functions. Failure: malformed bytes are INVALID_ARGUMENT.

#include <cstdint>
#include <optional>
#include <string>

#include "common/status.h"
#include "proto_msgpack/schema.h"

namespace tandem::wire {

struct LoraRequest {                                // array of 6
  std::string name;                                 // 0: lora_name, what clients write as the model
  int64_t id = 0;                                   // 1: lora_int_id, the frontend's, from 1
  std::string path;                                 // 2: lora_path, a folder on the engine's host
  std::optional<std::string> base_model_name = {};  // 3
  bool load_inplace = false;                        // 4: of add_lora: read it again
  bool is_3d_lora_weight = false;                   // 5

  friend bool operator==(const LoraRequest&, const LoraRequest&) = default;
};

RawValue Packed(const LoraRequest& lora);
StatusOr<LoraRequest> UnpackLoraRequest(const RawValue& value);

}  // namespace tandem::wire
