#pragma once

// The bodies of POST /v1/load_lora_adapter and POST /v1/unload_lora_adapter.

#include <optional>
#include <string>

#include "frontend/openai/parse.h"

namespace tandem {

struct LoadAdapterRequest {
  std::optional<std::string> lora_name;
  std::optional<std::string> lora_path;
  bool load_inplace = false;
  bool is_3d_lora_weight = false;
};

// clang-format off
inline constexpr ApiField<LoadAdapterRequest> kLoadAdapterFields[] = {
    {"lora_name", &LoadAdapterRequest::lora_name, {0, 512}, "The name for requests to put into `model`."},
    {"lora_path", &LoadAdapterRequest::lora_path, {0, 4096}, "Folder of the adapter, on the host of the engines."},
    {"load_inplace", &LoadAdapterRequest::load_inplace, {}, "Read an adapter anew that is there."},
    {"is_3d_lora_weight", &LoadAdapterRequest::is_3d_lora_weight, {}, "The pairs of all experts are stacked in one tensor."},
};
// clang-format on

struct UnloadAdapterRequest {
  std::optional<std::string> lora_name;
};

inline constexpr ApiField<UnloadAdapterRequest> kUnloadAdapterFields[] = {
    {"lora_name", &UnloadAdapterRequest::lora_name, {}, "The adapter's name."},
    {"lora_int_id", Ignored{}, {}, "Ignored."},
};

// What must be there is there.
StatusOr<LoadAdapterRequest> ParseLoadAdapterRequest(Json body);
StatusOr<UnloadAdapterRequest> ParseUnloadAdapterRequest(Json body);

}  // namespace tandem
