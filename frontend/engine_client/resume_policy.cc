#include "frontend/engine_client/resume_policy.h"

#include <algorithm>

namespace tandem {
namespace {

// Everyone else waits during a probation, so one that was long before is cut.
constexpr int64_t kMostOutputsToPass = 32;
// Outputs that had not left the engine when it died are lost, so its run was longer than is known.
// Where no restart is left to find that out, a request has to come further by these, too.
constexpr int64_t kUnsentOutputs = 8;

}  // namespace

EngineDeaths::Verdict EngineDeaths::OnDeath(const ResumeLimits& limits) {
  ++num_deaths_;
  if (on_probation_) return Verdict::kIsTheCause;
  if (num_deaths_ > limits.max_restarts) return Verdict::kTooMany;
  const bool is_last = num_deaths_ == limits.max_restarts;
  const bool is_suspect = num_deaths_ >= 2 && (num_outputs_ == 0 || is_last);
  const int64_t further = is_last ? 1 + kUnsentOutputs : 1;
  num_outputs_to_pass_ = std::min(num_outputs_ + further, kMostOutputsToPass);
  return is_suspect ? Verdict::kResumeAlone : Verdict::kResume;
}

}  // namespace tandem
