#pragma once

// What a quantized checkpoint wants its keys and values kept as: kv_cache_scheme of
// compressed-tensors' quantization_config, kv_cache_quant_algo of ModelOpt's, which may be a file
// of its own (hf_quant_config.json). Thread: any; values. Failure: an unreadable file,
// INVALID_ARGUMENT for one that is broken.

#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem {

struct KvCacheScheme {
  bool is_float8 = false;   // e4m3, with a scale for the tensor or none
  std::string unsupported;  // why it is not followed; empty: it is, or there is none
};

// hf_overrides: as for ReadModelConfig.
StatusOr<KvCacheScheme> ReadKvCacheScheme(const std::string& model_dir,
                                          std::string_view hf_overrides = {});

}  // namespace tandem
