#include "engine_core/scheduler/step_update.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/check.h"
#include "engine_core/scheduler/stop_check.h"

namespace tandem {
namespace {

wire::FinishReason FinishReasonOf(wire::RequestStatus status) {
  switch (status) {
    case wire::RequestStatus::kFinishedStopped:
      return wire::FinishReason::kStop;
    case wire::RequestStatus::kFinishedLengthCapped:
    case wire::RequestStatus::kFinishedIgnored:
      return wire::FinishReason::kLength;
    case wire::RequestStatus::kFinishedAborted:
      return wire::FinishReason::kAbort;
    case wire::RequestStatus::kFinishedRepetition:
      return wire::FinishReason::kRepetition;
    default:
      return wire::FinishReason::kError;
  }
}

bool IsRunning(const Request& request) { return request.status == wire::RequestStatus::kRunning; }

}  // namespace

void StepUpdate::Apply(const Step& step, ModelOutput* result, ClientOutputs* outputs) {
  CHECK_EQ(result->sampled_token_ids.size(), step.requests.size());
  auto extra = result->results.begin();
  for (size_t i = 0; i < step.requests.size(); ++i) {
    Request* request = step.requests[i];
    RequestResult* own = nullptr;
    if (extra != result->results.end() && static_cast<size_t>(extra->request_idx) == i) {
      own = &*extra++;
    }
    --request->num_steps_in_flight;
    const bool stale = request->num_stale_steps > 0;
    if (stale) --request->num_stale_steps;
    const bool failed = own != nullptr && !own->status.ok();
    // Ended while the step ran, or it samples this position again.
    if (request->finished() || (stale && request->drops_stale_output)) {
      if (failed) kv_cache_->Forget(request->block_hashes);
      continue;
    }
    if (failed) {
      Fail(request, own, outputs);
    } else if (step.output.requests[i].needs_sample) {
      if (!stale) --request->num_output_placeholders;
      AppendToken(request, result->sampled_token_ids[i], own, outputs);
    }
  }
}

void StepUpdate::AppendToken(Request* request, TokenId token, RequestResult* extra,
                             ClientOutputs* outputs) {
  CHECK_GE(token, 0) << "no token for " << request->id();
  request->token_ids.push_back(token);
  kv_cache_->ExtendHashes(request->token_ids, request->cache_salt(), &request->block_hashes);
  const std::optional<Stop> stop = CheckStop(request->wire.sampling_params, request->token_ids,
                                             request->num_prompt_tokens, max_model_len_);
  wire::EngineCoreOutput& record = outputs->AddOutput(request->wire.client_index, request->id());
  record.new_token_ids.push_back(token);
  record.events.swap(request->events);
  if (!request->has_output) record.prefill_stats = PrefillStatsOf(*request);
  request->has_output = true;
  if (extra != nullptr) {
    record.num_nans_in_logits = extra->num_nans_in_logits;
    if (extra->logprobs) record.new_logprobs = std::move(*extra->logprobs);
    if (extra->prompt_logprobs) record.new_prompt_logprobs = std::move(*extra->prompt_logprobs);
  }
  if (stop) {
    record.finish_reason = FinishReasonOf(stop->status);
    record.stop_reason = stop->reason;
    // A block that was filled by placeholders has its hash only now.
    if (IsRunning(*request)) {
      kv_cache_->RegisterUpTo(request->slot, request->sequence(),
                              request->num_computed_tokens - request->num_output_placeholders);
    }
    requests_->Finish(request, stop->status);
  }
}

// Ends a request that the executor could not go on with. Nothing it has put into the cache or read
// from there is trusted: blocks with NaN in them would fail every later request with this prefix.
void StepUpdate::Fail(Request* request, RequestResult* extra, ClientOutputs* outputs) {
  wire::EngineCoreOutput& record = outputs->AddOutput(request->wire.client_index, request->id());
  record.finish_reason = wire::FinishReason::kError;
  record.num_nans_in_logits = extra->num_nans_in_logits;
  record.events.swap(request->events);
  // Masks that leave no token are the client's mistake.
  const bool invalid = extra->status.code() == StatusCode::kInvalidArgument;
  record.error = wire::EngineCoreError{
      .code = std::string(invalid ? wire::kErrorValidation : wire::kErrorInternal),
      .message = extra->status.message()};
  if (IsRunning(*request)) {
    kv_cache_->ForgetBeyond(request->slot, request->sequence(), 0);
  } else {  // preempted since: its blocks may be on the free list, still findable
    kv_cache_->Forget(request->block_hashes);
  }
  requests_->Finish(request, wire::RequestStatus::kFinishedError);
}

wire::PrefillStats StepUpdate::PrefillStatsOf(const Request& request) const {
  wire::PrefillStats stats;
  const int32_t num_registered =
      IsRunning(request) ? kv_cache_->NumRegisteredTokens(request.slot) : 0;
  stats.num_prompt_tokens = request.num_prompt_tokens;
  stats.num_cached_tokens = stats.num_local_cached_tokens = request.num_cached_tokens;
  stats.num_computed_tokens = request.num_prompt_tokens - request.num_cached_tokens;
  stats.num_cache_creation_tokens =
      std::max(0, std::min(num_registered, request.num_prompt_tokens) - request.num_cached_tokens);
  return stats;
}

}  // namespace tandem
