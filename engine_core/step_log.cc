#include "engine_core/step_log.h"

#include "common/log.h"
#include "common/log_event.h"

namespace tandem {

void LogStep(const SchedulerOutput& step, const Scheduler& scheduler) {
  if (!LogEnabled(LogLevel::kDebug) || step.empty()) return;
  for (const AdmittedRequest& admitted : step.admitted) {
    const ScheduledRequest& scheduled = step.requests[static_cast<size_t>(admitted.request_idx)];
    const bool is_new = scheduled.kind == ScheduledKind::kNew;
    LOG_EVENT(LogLevel::kDebug, is_new ? "request scheduled" : "request resumed after preemption")
        .Add("id", *admitted.request_id)
        .Add("tokens", admitted.token_ids.size())
        .Add("cached_tokens", scheduled.num_computed_tokens)
        .Add("blocks", scheduled.num_new_blocks);
  }
  LOG_EVENT(LogLevel::kDebug, "step")
      .Add("requests", step.requests.size())
      .Add("tokens", step.num_scheduled_tokens)
      .Add("prefills", step.num_prefills)
      .Add("prefill_tokens", step.num_prefill_tokens)
      .Add("waiting", scheduler.num_waiting())
      .Add("masks", step.token_masks.size());
}

}  // namespace tandem
