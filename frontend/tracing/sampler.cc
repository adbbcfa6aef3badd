#include "frontend/tracing/sampler.h"

#include <string>

#include "common/strings.h"

namespace tandem {

StatusOr<Sampler> Sampler::Parse(std::string_view name, std::string_view argument) {
  constexpr std::string_view kParentBased = "parentbased_";
  Sampler sampler;
  std::string_view root = name;
  sampler.follows_parent_ = root.starts_with(kParentBased);
  if (sampler.follows_parent_) root.remove_prefix(kParentBased.size());
  if (root == "always_on") return sampler;
  if (root == "always_off") {
    sampler.ratio_ = 0;
    return sampler;
  }
  if (root != "traceidratio") {
    return InvalidArgumentError("sampler is '" + std::string(name) +
                                "', must be always_on, always_off or traceidratio, or one of these "
                                "after parentbased_");
  }
  if (argument.empty()) return sampler;
  const std::optional<double> ratio = ParseNumber<double>(argument);
  if (!ratio || !(*ratio >= 0 && *ratio <= 1)) {
    return InvalidArgumentError("the share of traceidratio is '" + std::string(argument) +
                                "', must be a number from 0 to 1");
  }
  sampler.ratio_ = *ratio;
  return sampler;
}

bool Sampler::Samples(const std::optional<TraceContext>& parent, const TraceId& trace_id) const {
  if (follows_parent_ && parent) return parent->is_sampled;
  // As a double the largest id is 2^64 itself.
  return ratio_ == 1 || static_cast<double>(trace_id.low) < ratio_ * 0x1p64;
}

}  // namespace tandem
