#pragma once

// The configuration of an EAGLE head: config.json of its folder, in the layout of the published
// checkpoints that vLLM loads. Thread: any; values. Failure: INVALID_ARGUMENT that names the key.

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "engine_core/weights/model_config.h"

namespace tandem {

constexpr size_t kMostStateLayers = 8;

enum class EagleVersion { kEagle, kEagle3 };

struct EagleConfig {
  EagleVersion version = EagleVersion::kEagle;
  ModelConfig layer;             // its one layer; vocab_size is the target's
  int64_t draft_vocab_size = 0;  // eagle3; eagle has the target's vocabulary
  // eagle3: after how many layers the target's states are taken; 0: its embeddings. At most
  // kMostStateLayers.
  std::vector<int> state_layers;
  bool norm_before_residual = false;  // eagle3: the residual is the normed state
  bool norm_output = false;           // eagle3: its own state is taken after the last norm

  // Columns of what it is given of the target for each token.
  int64_t state_width() const {
    return layer.hidden_size *
           (version == EagleVersion::kEagle ? 1 : static_cast<int64_t>(state_layers.size()));
  }
};

// INVALID_ARGUMENT also for a head that does not fit the target.
StatusOr<EagleConfig> ReadEagleConfig(const std::string& folder, EagleVersion version,
                                      const ModelConfig& target);
StatusOr<EagleConfig> ParseEagleConfig(const std::string& text, EagleVersion version,
                                       const ModelConfig& target);

}  // namespace tandem
