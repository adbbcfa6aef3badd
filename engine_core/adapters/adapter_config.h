#pragma once

// adapter_config.json of a PEFT folder: the ranks and scales of a LoRA adapter. What would change
// its result and is not computed here is refused by its key; other keys have no effect on a
// finished adapter. Thread: any; pure. Failure: INVALID_ARGUMENT names the key, its value and what
// is allowed.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "engine_core/adapters/module_pattern.h"

namespace tandem {

// Of a pair.
struct AdapterScaling {
  int64_t rank = 0;
  float scale = 1;  // what B is multiplied with: alpha / rank, or alpha / sqrt(rank) (rsLoRA)
};

class AdapterConfig {
 public:
  // No rank may be above max_rank.
  static StatusOr<AdapterConfig> Parse(std::string_view json, int64_t max_rank);

  // Of a module by its path, "model.layers.0.self_attn.q_proj": the value of the first pattern that
  // matches, else that of all others. RESOURCE_EXHAUSTED: a pattern takes too long.
  StatusOr<AdapterScaling> ScalingOf(std::string_view module) const;
  // Why the adapter may belong to other weights than the base model's own; empty: no reason.
  const std::string& warning() const { return warning_; }

 private:
  template <class T>
  using Patterns = std::vector<std::pair<ModulePattern, T>>;

  int64_t rank_ = 0;
  double alpha_ = 0;
  bool has_root_scale_ = false;
  Patterns<int64_t> ranks_;
  Patterns<double> alphas_;
  std::string warning_;
};

}  // namespace tandem
