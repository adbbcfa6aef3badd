#include "frontend/metrics/draft_log.h"

#include <algorithm>
#include <utility>

#include "frontend/metrics/format.h"

namespace tandem {

std::string DraftLog::Line(double now) {
  const double elapsed = std::max(now - std::exchange(last_time_, now), 1e-3);
  if (!stats_.Drain(&drained_)) return {};
  double drafts = 0, drafted = 0, accepted = 0;
  std::vector<double> per_position;
  for (const wire::SpecDecodingStats& stats : drained_) {
    drafts += static_cast<double>(stats.num_drafts);
    drafted += static_cast<double>(stats.num_draft_tokens);
    accepted += static_cast<double>(stats.num_accepted_tokens);
    const auto& counts = stats.num_accepted_tokens_per_pos;
    per_position.resize(std::max(per_position.size(), counts.size()));
    for (size_t i = 0; i < counts.size(); ++i) per_position[i] += static_cast<double>(counts[i]);
  }
  if (drafts == 0 || drafted == 0) return {};
  std::string line = "SpecDecoding metrics: ";
  line += "Mean acceptance length: " + Format("%.2f, ", 1 + accepted / drafts);
  line += "Accepted throughput: " + Format("%.2f tokens/s, ", accepted / elapsed);
  line += "Drafted throughput: " + Format("%.2f tokens/s, ", drafted / elapsed);
  line += "Accepted: " + Format("%.0f tokens, ", accepted);
  line += "Drafted: " + Format("%.0f tokens, ", drafted);
  line += "Per-position acceptance rate: ";
  for (const double count : per_position) line += Format("%.3f, ", count / drafts);
  return line + "Avg Draft acceptance rate: " + Format("%.1f%%", 100 * accepted / drafted);
}

}  // namespace tandem
