#include "engine_core/scheduler/waiting_pass.h"

#include <algorithm>

namespace tandem {
namespace {

bool ReadsPrefixCache(const Request& request) {
  // A cached prefix makes no logits, so prompt logprobs need the whole prompt computed.
  const wire::SamplingParams& params = request.wire.sampling_params;
  return !params.skip_reading_prefix_cache.value_or(params.prompt_logprobs.has_value());
}

}  // namespace

size_t WaitingPass::Run(StepPlan* plan) {
  const auto max_running = static_cast<size_t>(config_->max_num_active_seqs);
  size_t num_passed_over = 0;
  Request* request = requests_->waiting().First();
  while (request != nullptr && plan->budget_tokens() > 0 &&
         requests_->running().size() < max_running) {
    Request* next = requests_->waiting().Next(request);
    if (request->awaits_stale_output()) {
      ++num_passed_over;
    } else if (!TryAdmit(request, plan)) {
      break;
    }
    request = next;
  }
  return num_passed_over;
}

// False: it does not fit, nothing has changed.
bool WaitingPass::TryAdmit(Request* request, StepPlan* plan) {
  const bool looks_up = kv_cache_->config().enable_prefix_caching && ReadsPrefixCache(*request);
  Admission admission;
  if (looks_up) {
    // At least the last token is computed: its logits are needed.
    admission.cached_prefix =
        kv_cache_->FindCachedPrefix(request->block_hashes, request->num_tokens() - 1);
  }
  const int32_t num_hit_tokens =
      static_cast<int32_t>(admission.cached_prefix.size()) * kv_cache_->config().block_size;
  const int32_t num_left = request->num_tokens() - num_hit_tokens;
  if (num_left > 1 && plan->holds_prefills()) return false;
  int32_t num_tokens = std::min(num_left, plan->chunk_limit());
  if (!config_->enable_chunked_prefill && num_tokens > plan->budget_tokens()) return false;
  num_tokens = std::min(num_tokens, plan->budget_tokens());

  admission.num_tokens = num_hit_tokens + num_tokens;
  admission.num_tokens_to_fit = config_->reserve_full_isl ? request->num_tokens() : 0;
  admission.keep_watermark = !requests_->running().empty();
  if (!kv_cache_->TryAdmit(requests_->next_slot(), request->sequence(), admission)) return false;

  if (looks_up) CountLookup(*request, num_hit_tokens);
  const bool resumed = request->status == wire::RequestStatus::kPreempted;
  requests_->Admit(request, num_hit_tokens, plan->now());
  plan->AddAdmitted(request, num_tokens, resumed);
  if (num_left > 1) plan->NotePrefill();
  return true;
}

void WaitingPass::CountLookup(const Request& request, int32_t num_hit_tokens) {
  wire::PrefixCacheStats& stats = prefix_cache_stats_;
  const bool again = request.num_preemptions > 0;
  (again ? stats.preempted_requests : stats.requests) += 1;
  (again ? stats.preempted_queries : stats.queries) += request.num_tokens();
  (again ? stats.preempted_hits : stats.hits) += num_hit_tokens;
}

}  // namespace tandem
