#pragma once

// The flags about images, as they are given, and what they mean for a model. Values.
// Thread: main, before others start. Failure: INVALID_ARGUMENT that names the flag, or the model's
// file, and what is allowed.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "frontend/media/media_reader.h"
#include "frontend/processing/image_prompt.h"
#include "frontend/text/tokenizer.h"

namespace tandem {

struct MediaFlags {
  bool language_model_only = false;
  std::string limit_mm_per_prompt;  // JSON, as are the next two
  std::string mm_processor_kwargs;
  std::string media_io_kwargs;
  bool trust_request_mm_kwargs = false;
  // At most what an engine takes in one message (wire::EngineEndpointOptions).
  static constexpr int64_t kMostImageInputBytes = 512ll << 20;
  int64_t max_image_input_bytes = kMostImageInputBytes;
  double mm_processor_cache_gb = 4;
  int64_t media_loading_thread_count = 8;
  MediaAccess access;
};

// What does not depend on the model.
Status CheckMediaFlags(const MediaFlags& flags);

// Names of flags that are set although they have no effect without images.
std::vector<std::string_view> IdleMediaFlags(const MediaFlags& flags);

// nullopt: the model takes no images.
StatusOr<std::optional<ImageInputs>> ReadImageInputs(const std::string& model,
                                                     const MediaFlags& flags,
                                                     const Tokenizer& tokenizer);

}  // namespace tandem
