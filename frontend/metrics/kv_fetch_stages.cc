#include "frontend/metrics/kv_fetch_stages.h"

#include <algorithm>
#include <string_view>

namespace tandem {
namespace {

constexpr std::string_view kStages[] = {"waiting_to_start", "in_progress", "completed_waiting"};

}  // namespace

void KvFetchStages::Set(const wire::CountsByName& counts) {
  is_shown_ = true;
  for (const std::string_view stage : kStages) {
    const auto found = std::ranges::find(counts, stage, &wire::CountsByName::value_type::first);
    Gauge(
        in_.With("stage", stage), "vllm:num_requests_kv_fetch_by_stage",
        "Waiting requests whose KV is loaded from elsewhere, by stage: the load has not begun, is "
        "under way, or has ended.")
        .Set(found == counts.end() ? 0 : static_cast<double>(found->second));
  }
}

}  // namespace tandem
