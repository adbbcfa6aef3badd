#pragma once

// Which requests leave spans: OTEL_TRACES_SAMPLER's names. Pure; any thread.

#include <optional>
#include <string_view>

#include "common/status.h"
#include "frontend/tracing/trace_context.h"

namespace tandem {

class Sampler {
 public:
  // parentbased_always_on: as the caller decided, and all requests without one.
  Sampler() = default;
  // always_on, always_off, traceidratio, or one of these after parentbased_; argument: the share of
  // traceidratio, 0 to 1, all when empty. INVALID_ARGUMENT names what is allowed.
  static StatusOr<Sampler> Parse(std::string_view name, std::string_view argument);

  // The share is taken by the id, so that every service that counts so takes the same traces.
  bool Samples(const std::optional<TraceContext>& parent, const TraceId& trace_id) const;

 private:
  bool follows_parent_ = true;
  double ratio_ = 1;
};

}  // namespace tandem
