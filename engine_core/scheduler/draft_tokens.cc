#include "engine_core/scheduler/draft_tokens.h"

#include <utility>

#include "common/check.h"

namespace tandem {

DraftTokens::DraftTokens(const DraftConfig& config, int32_t max_model_len)
    : config_(config), max_model_len_(max_model_len), stats_(NoCounts()) {
  CHECK(config.num_speculative_tokens >= 0 && config.num_lookahead_tokens >= 0 &&
        config.num_input_slots >= 0);
}

int32_t DraftTokens::NumPadding(int32_t num_computed) const {
  const int32_t num_drafts = config_.num_speculative_tokens;
  // A token is sampled after the last draft.
  return num_computed + 1 + num_drafts < max_model_len_ ? num_drafts : 0;
}

int32_t DraftTokens::NumWanted(size_t num_requests) const {
  int32_t num_drafts = config_.num_speculative_tokens;
  for (const DraftConfig::FromBatch& from : config_.by_batch) {
    if (static_cast<size_t>(from.num_requests) > num_requests) break;
    num_drafts = from.num_drafts;
  }
  return num_requests == 0 ? config_.num_speculative_tokens : num_drafts;
}

void DraftTokens::Schedule(int32_t num_drafts, Request* request, ScheduledRequest* scheduled,
                           SchedulerOutput* output) const {
  scheduled->drafts_begin = static_cast<int32_t>(output->draft_token_ids.size());
  scheduled->num_draft_tokens = num_drafts;
  const bool are_known = request->num_output_placeholders == 0;
  const std::vector<TokenId>& known = request->drafts.token_ids;
  for (size_t i = 0; i < static_cast<size_t>(num_drafts); ++i) {
    output->draft_token_ids.push_back(are_known && i < known.size() ? known[i] : kNoToken);
  }
  request->drafts.token_ids.clear();
  request->drafts.num_in_flight += num_drafts;
  request->num_output_placeholders += num_drafts;
}

std::span<const TokenId> DraftTokens::SettleDrafts(const ScheduledRequest& scheduled,
                                                   const ModelOutput& result,
                                                   const DraftResult* drafted, bool is_stale,
                                                   Request* request) {
  const int32_t num_accepted = drafted == nullptr ? 0 : drafted->num_accepted;
  const int32_t num_rejected = scheduled.num_draft_tokens - num_accepted;
  if (!is_stale) {
    request->num_computed_tokens -= num_rejected;
    request->num_output_placeholders -= scheduled.num_draft_tokens;
    request->drafts.num_in_flight -= scheduled.num_draft_tokens;
    request->drafts.token_ids.clear();
  }
  if (drafted == nullptr) return {};
  CHECK(num_accepted <= drafted->num_verified &&
        drafted->num_verified <= scheduled.num_draft_tokens)
      << request->id() << ": " << num_accepted << " drafts accepted, " << drafted->num_verified
      << " verified, " << scheduled.num_draft_tokens << " scheduled";
  CHECK_LE(drafted->num_proposed, config_.num_speculative_tokens) << request->id();
  Count(*drafted, request);
  if (!is_stale) {
    const std::span<const TokenId> proposed = result.Proposed(*drafted);
    request->drafts.token_ids.assign(proposed.begin(), proposed.end());
  }
  return result.Accepted(*drafted);
}

void DraftTokens::Count(const DraftResult& drafted, Request* request) {
  if (drafted.num_verified == 0) return;
  CountForRequest(drafted, request);
  ++stats_.num_drafts;
  stats_.num_draft_tokens += drafted.num_verified;
  stats_.num_accepted_tokens += drafted.num_accepted;
  for (size_t i = 0; i < static_cast<size_t>(drafted.num_verified); ++i) {
    ++stats_.num_draft_tokens_per_pos[i];
    if (i < static_cast<size_t>(drafted.num_accepted)) ++stats_.num_accepted_tokens_per_pos[i];
  }
}

void DraftTokens::CountForRequest(const DraftResult& drafted, Request* request) const {
  if (config_.report == DraftReport::kNone) return;
  auto& metrics = request->drafts.metrics;
  if (metrics == nullptr) metrics = std::make_unique<wire::RequestSpecDecodeMetrics>(NoMetrics());
  ++metrics->histogram[static_cast<size_t>(drafted.num_accepted)];
  metrics->num_draft_tokens += drafted.num_verified;
  if (config_.report != DraftReport::kEveryStep) return;
  metrics->per_step_accepted.push_back(drafted.num_accepted);
  metrics->per_step_drafted.push_back(drafted.num_verified);
}

wire::Rare<wire::RawValue> DraftTokens::MetricsOf(const Request& request) const {
  if (config_.report == DraftReport::kNone) return {};
  const auto& metrics = request.drafts.metrics;
  return wire::Packed(metrics == nullptr ? NoMetrics() : *metrics);
}

wire::RequestSpecDecodeMetrics DraftTokens::NoMetrics() const {
  wire::RequestSpecDecodeMetrics none;
  none.num_spec_tokens = config_.num_speculative_tokens;
  none.histogram.resize(static_cast<size_t>(config_.num_speculative_tokens) + 1);
  return none;
}

std::optional<wire::SpecDecodingStats> DraftTokens::TakeStats() {
  if (stats_.num_drafts == 0) return std::nullopt;
  return std::exchange(stats_, NoCounts());
}

wire::SpecDecodingStats DraftTokens::NoCounts() const {
  const auto num_positions = static_cast<size_t>(config_.num_speculative_tokens);
  wire::SpecDecodingStats none;
  none.num_spec_tokens = config_.num_speculative_tokens;
  none.num_accepted_tokens_per_pos.resize(num_positions);
  none.num_draft_tokens_per_pos.resize(num_positions);
  return none;
}

}  // namespace tandem
